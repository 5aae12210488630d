#include "base/text.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace muster {

// Table 3-7 of the Unicode Standard 15.0.
size_t Utf8SequenceLength(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto continues = [&](size_t i, unsigned least, unsigned most) {
    return i < text.size() && byte(i) >= least && byte(i) <= most;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continues(1, 0x80, 0xBF) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const unsigned least = lead == 0xE0 ? 0xA0 : 0x80;
    const unsigned most = lead == 0xED ? 0x9F : 0xBF;
    return continues(1, least, most) && continues(2, 0x80, 0xBF) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const unsigned least = lead == 0xF0 ? 0x90 : 0x80;
    const unsigned most = lead == 0xF4 ? 0x8F : 0xBF;
    return continues(1, least, most) && continues(2, 0x80, 0xBF) && continues(3, 0x80, 0xBF) ? 4
                                                                                             : 0;
  }
  return 0;
}

namespace {

// Of ASCII, or of the second set (U+0080 to U+009F), which some terminals obey as well.
bool IsControl(absl::string_view sequence) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(sequence[i]); };
  return absl::ascii_iscntrl(byte(0)) ||
         (sequence.size() == 2 && byte(0) == 0xC2 && byte(1) < 0xA0);
}

}  // namespace

std::string TextForPeople(absl::string_view text, size_t most) {
  std::string result;
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    const size_t taken = length == 0 ? 1 : length;
    if (result.size() + taken > most) break;
    if (length == 0) {
      result += '?';
    } else if (IsControl(text.substr(0, length))) {
      result += ' ';
    } else {
      result.append(text.data(), length);
    }
    text.remove_prefix(taken);
  }
  return result;
}

absl::Status StatusForPeople(const absl::Status& status) {
  constexpr size_t kMaxMessageBytes = 2'000;
  return absl::Status(status.code(), TextForPeople(status.message(), kMaxMessageBytes));
}

std::string ByteText(int64_t bytes) {
  if (bytes < 1 << 10) return absl::StrCat(bytes, " B");
  const auto count = static_cast<double>(bytes);
  if (bytes < 1 << 20) return absl::StrFormat("%.4g KiB", count / (1 << 10));
  if (bytes < 1 << 30) return absl::StrFormat("%.4g MiB", count / (1 << 20));
  return absl::StrFormat("%.4g GiB", count / (1 << 30));
}

}  // namespace muster
