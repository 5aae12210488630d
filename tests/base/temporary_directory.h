// A directory that a test may fill; removed with everything in it at the end of its scope.
#ifndef MUSTER_TESTS_BASE_TEMPORARY_DIRECTORY_H_
#define MUSTER_TESTS_BASE_TEMPORARY_DIRECTORY_H_

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "base/check.h"

namespace muster {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "muster-test-XXXXXX").string();
    MUSTER_CHECK(mkdtemp(pattern.data()) != nullptr) << pattern;
    path_ = pattern;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string Path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Without a sync: thousands of them would take seconds.
inline void WriteTestFile(const std::string& path, const std::string& contents) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << contents << std::flush;
  MUSTER_CHECK(file.good()) << path;
}

}  // namespace muster

#endif  // MUSTER_TESTS_BASE_TEMPORARY_DIRECTORY_H_
