#include "tests/tidy/text.h"
#include "tests/tidy/tidy.h"

namespace muster {
namespace {

constexpr size_t kMaxLines = 500;
constexpr size_t kMaxColumns = 100;

std::string Guard(const std::string& path) {
  std::string guard = "MUSTER_";
  for (const char c : path) guard += absl::ascii_isalnum(c) ? absl::ascii_toupper(c) : '_';
  return guard + "_";
}

// Highway's files are included once for each instruction set, so their guards are special.
bool IsReincluded(absl::string_view path) { return absl::EndsWith(path, "-inl.h"); }

// Characters, not bytes: continuation bytes of UTF-8 do not count.
size_t Columns(absl::string_view line) {
  size_t columns = 0;
  for (const char c : line) columns += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return columns;
}

void CheckGuard(const SourceFile& file, Problems* problems) {
  const std::string guard = Guard(file.path);
  if (!absl::StrContains(file.text, absl::StrCat("\n#ifndef ", guard, "\n#define ", guard, "\n"))) {
    problems->push_back(Problem(file, 1, absl::StrCat("expected the include guard ", guard)));
  }
  if (!absl::StartsWith(file.text, "//")) {
    problems->push_back(Problem(file, 1, "a header opens with a comment that is its contract"));
  }
}

}  // namespace

void CheckForm(const SourceFile& file, Problems* problems) {
  const std::vector<std::string> lines = Lines(file.text);
  const bool is_text = absl::EndsWith(file.path, ".md") || file.path == "LICENSE";
  if (!is_text && lines.size() > kMaxLines && !absl::EndsWith(file.path, ".json")) {
    problems->push_back(Problem(file, kMaxLines + 1,
                                absl::StrCat(lines.size(), " lines; split files at ", kMaxLines)));
  }
  if (IsCpp(file.path)) {
    for (size_t i = 0; i < lines.size(); ++i) {
      if (Columns(lines[i]) > kMaxColumns) {
        problems->push_back(
            Problem(file, i + 1, absl::StrCat(Columns(lines[i]), " columns, limit ", kMaxColumns)));
      }
    }
  }
  if (absl::EndsWith(file.path, ".h") && !IsReincluded(file.path)) CheckGuard(file, problems);
  if (!file.text.empty() && file.text.back() != '\n') {
    problems->push_back(Problem(file, lines.size(), "no newline at the end"));
  }
  // Written in two parts, or this line would be a problem itself.
  for (const std::string place : {"/wo"
                                  "rk/",
                                  "/ro"
                                  "ot/",
                                  "/ho"
                                  "me/"}) {
    for (size_t i = 0; i < lines.size(); ++i) {
      if (absl::StrContains(lines[i], place)) {
        problems->push_back(Problem(file, i + 1, absl::StrCat("a path of one machine: ", place)));
      }
    }
  }
}

}  // namespace muster
