#include "proto/convert/field.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/convert/control.h"

namespace muster {
namespace {

std::string Quoted(absl::string_view value) {
  constexpr size_t kShown = 80;
  // The cut may go through a character.
  const std::string shown = absl::Utf8SafeCEscape(value.substr(0, kShown));
  return absl::StrCat("\"", TextForPeople(shown, shown.size()),
                      value.size() > kShown ? "...\"" : "\"");
}

}  // namespace

std::string Field(absl::string_view path, absl::string_view name) {
  return path.empty() ? std::string(name) : absl::StrCat(path, ".", name);
}

absl::Status FieldError(absl::string_view path, absl::string_view must_be, absl::string_view got) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": must be ", must_be, ", got ", got));
}

absl::Status MissingField(absl::string_view path) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": is missing"));
}

absl::Status CheckRange(absl::string_view path, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return FieldError(path, absl::StrFormat("%d to %d", least, most), absl::StrCat(value));
}

absl::Status CheckEpoch(absl::string_view path, uint64_t value) {
  if (value <= kMaxEpoch) return absl::OkStatus();
  return FieldError(path, absl::StrFormat("at most %d", kMaxEpoch), absl::StrCat(value));
}

absl::Status CheckFinite(absl::string_view path, double value) {
  if (std::isfinite(value)) return absl::OkStatus();
  return FieldError(path, "a finite number", absl::StrFormat("%g", value));
}

absl::Status CheckFiniteAtLeastZero(absl::string_view path, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return FieldError(path, "a finite number >= 0", absl::StrFormat("%g", value));
}

absl::Status CheckFinitePositive(absl::string_view path, double value) {
  if (std::isfinite(value) && value > 0) return absl::OkStatus();
  return FieldError(path, "a finite number > 0", absl::StrFormat("%g", value));
}

absl::Status CheckFraction(absl::string_view path, double value) {
  if (value >= 0 && value < 1) return absl::OkStatus();
  return FieldError(path, "at least 0 and less than 1", absl::StrFormat("%g", value));
}

absl::Status CheckText(absl::string_view path, absl::string_view value, size_t most,
                       bool required) {
  if (required && value.empty()) return MissingField(path);
  if (value.size() > most) {
    return FieldError(path, absl::StrFormat("at most %d bytes", most),
                      absl::StrFormat("%d", value.size()));
  }
  for (const char c : value) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      return FieldError(path, "text without control characters", Quoted(value));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckName(absl::string_view path, absl::string_view value) {
  bool good = !value.empty() && value.size() <= kMaxNameBytes &&
              absl::ascii_isalnum(static_cast<unsigned char>(value.front()));
  for (const char c : value) {
    good = good &&
           (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-');
  }
  if (good) return absl::OkStatus();
  return FieldError(path,
                    "1 to 63 letters, digits, '.', '_' or '-', starting with a letter or digit",
                    Quoted(value));
}

}  // namespace muster
