#include <map>

#include "tests/tidy/text.h"
#include "tests/tidy/tidy.h"

namespace muster {
namespace {

// The name as a whole word of a CMake file, comments left out.
bool Names(const std::string& cmake, const std::string& name) {
  for (const std::string& line : Lines(cmake)) {
    const std::string code = line.substr(0, line.find('#'));
    for (size_t at = code.find(name); at != std::string::npos; at = code.find(name, at + 1)) {
      const auto word = [&](size_t i) {
        return absl::ascii_isalnum(code[i]) || code[i] == '_' || code[i] == '/' || code[i] == '.';
      };
      const size_t end = at + name.size();
      if ((at == 0 || !word(at - 1)) && (end == code.size() || !word(end))) return true;
    }
  }
  return false;
}

}  // namespace

void CheckRegistration(const std::vector<SourceFile>& files, Problems* problems) {
  std::map<std::string, const SourceFile*> cmake;  // by folder, with a slash; the root is ""
  for (const SourceFile& file : files) {
    const size_t slash = file.path.rfind('/');
    const std::string folder = slash == std::string::npos ? "" : file.path.substr(0, slash + 1);
    if (file.path.substr(folder.size()) == "CMakeLists.txt") cmake[folder] = &file;
  }
  for (const SourceFile& file : files) {
    if (!absl::EndsWith(file.path, ".cc")) continue;
    bool registered = false;
    for (size_t slash = file.path.rfind('/'); slash != std::string::npos && !registered;
         slash = slash == 0 ? std::string::npos : file.path.rfind('/', slash - 1)) {
      const auto found = cmake.find(file.path.substr(0, slash + 1));
      registered = found != cmake.end() && Names(found->second->text, file.path.substr(slash + 1));
    }
    if (!registered) {
      problems->push_back(
          Problem(file, 1, "no CMakeLists.txt names this file, so nothing builds it"));
    }
  }
}

Problems CheckTree(const std::vector<SourceFile>& files) {
  Problems problems;
  for (const SourceFile& file : files) {
    CheckIncludes(file, &problems);
    CheckForm(file, &problems);
    CheckCalls(file, &problems);
  }
  CheckRegistration(files, &problems);
  return problems;
}

}  // namespace muster
