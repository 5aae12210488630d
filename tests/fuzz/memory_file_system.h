// Files in memory, to be read. For decoders that take a FileSystem: a fuzzer must not wait for a
// disk. Thread-safe.
#ifndef MUSTER_TESTS_FUZZ_MEMORY_FILE_SYSTEM_H_
#define MUSTER_TESTS_FUZZ_MEMORY_FILE_SYSTEM_H_

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"

namespace muster {

// Reads work; whatever would change something is UNIMPLEMENTED.
class MemoryFileSystem final : public FileSystem {
 public:
  explicit MemoryFileSystem(std::map<std::string, std::string> files) : files_(std::move(files)) {}

  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    const auto found = files_.find(path);
    if (found == files_.end()) return absl::NotFoundError(absl::StrCat("no file ", path));
    return std::make_unique<File>(found->second);
  }
  absl::StatusOr<bool> Exists(const std::string& path) override {
    return files_.find(path) != files_.end();
  }
  absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string&) override {
    return Refuse();
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string&) override {
    return Refuse();
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenToAppend(const std::string&) override {
    return Refuse();
  }
  absl::Status CreateDirectories(const std::string&) override { return Refuse(); }
  absl::Status Rename(const std::string&, const std::string&) override { return Refuse(); }
  absl::Status SyncDirectory(const std::string&) override { return Refuse(); }
  absl::Status RemoveAll(const std::string&) override { return Refuse(); }

 private:
  class File final : public ReadableFile {
   public:
    explicit File(const std::string& bytes) : bytes_(bytes) {}
    int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }
    absl::StatusOr<size_t> ReadAt(int64_t offset, absl::Span<char> out) const override {
      if (offset >= size()) return size_t{0};
      const size_t count = std::min(out.size(), bytes_.size() - static_cast<size_t>(offset));
      if (count > 0) std::memcpy(out.data(), bytes_.data() + offset, count);
      return count;
    }

   private:
    const std::string& bytes_;  // of the file system, which outlives its files
  };

  static absl::Status Refuse() { return absl::UnimplementedError("these files are only read"); }

  const std::map<std::string, std::string> files_;
};

}  // namespace muster

#endif  // MUSTER_TESTS_FUZZ_MEMORY_FILE_SYSTEM_H_
