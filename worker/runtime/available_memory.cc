#include "worker/runtime/available_memory.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace muster {
namespace {

// The kernel's files have no size to read by. Empty if there is none.
std::string ReadKernelFile(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::optional<int64_t> ReadNumber(const std::string& path) {
  int64_t number = 0;
  if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(ReadKernelFile(path)), &number)) {
    return std::nullopt;
  }
  return number;
}

// What is left of the limit of the group; nullopt where there is none ("max").
std::optional<int64_t> LeftInControlGroup() {
  const std::string groups = ReadKernelFile("/proc/self/cgroup");
  for (absl::string_view line : absl::StrSplit(groups, '\n')) {
    if (!absl::ConsumePrefix(&line, "0::")) continue;
    const std::string group = absl::StrCat("/sys/fs/cgroup", line);
    const auto most = ReadNumber(group + "/memory.max");
    const auto used = ReadNumber(group + "/memory.current");
    if (most.has_value() && used.has_value()) return std::max<int64_t>(0, *most - *used);
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> MemAvailable(absl::string_view meminfo) {
  for (absl::string_view line : absl::StrSplit(meminfo, '\n')) {
    int64_t kib = 0;
    if (absl::ConsumePrefix(&line, "MemAvailable:") && absl::ConsumeSuffix(&line, "kB") &&
        absl::SimpleAtoi(absl::StripAsciiWhitespace(line), &kib)) {
      return kib << 10;
    }
  }
  return std::nullopt;
}

std::optional<int64_t> AvailableMemory() {
  const std::optional<int64_t> available = MemAvailable(ReadKernelFile("/proc/meminfo"));
  const std::optional<int64_t> left = LeftInControlGroup();
  if (!available.has_value() || !left.has_value()) return available.has_value() ? available : left;
  return std::min(*available, *left);
}

}  // namespace muster
