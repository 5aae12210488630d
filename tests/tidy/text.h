// Small helpers on source text.
#ifndef MUSTER_TESTS_TIDY_TEXT_H_
#define MUSTER_TESTS_TIDY_TEXT_H_

#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/tidy/tidy.h"

namespace muster {

inline bool IsCpp(absl::string_view path) {
  return absl::EndsWith(path, ".cc") || absl::EndsWith(path, ".h");
}

// Only these read flags and the environment, write to standard output and end the process.
inline bool IsMain(absl::string_view path) { return absl::EndsWith(path, "_main.cc"); }

inline bool IsUnder(absl::string_view path, absl::string_view folder) {
  return absl::StartsWith(path, absl::StrCat(folder, "/"));
}

inline std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

// A line without its comment and the insides of its string literals.
inline std::string CodeOnly(absl::string_view line) {
  std::string code;
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != 0) {
      if (c == '\\') {
        ++i;
      } else if (c == quote) {
        quote = 0;
        code += c;
      }
    } else if (c == '/' && i + 1 < line.size() && line[i + 1] == '/') {
      break;
    } else {
      // A quote between digits separates them.
      const bool separator = c == '\'' && i > 0 && absl::ascii_isxdigit(line[i - 1]);
      if (c == '"' || (c == '\'' && !separator)) quote = c;
      code += c;
    }
  }
  return code;
}

inline std::string Problem(const SourceFile& file, size_t line, absl::string_view what) {
  return absl::StrCat(file.path, ":", line, ": ", what);
}

}  // namespace muster

#endif  // MUSTER_TESTS_TIDY_TEXT_H_
