#include "base/control/communication.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace muster {
namespace {

std::string Bytes(int64_t bytes) {
  if (bytes < 1 << 10) return absl::StrCat(bytes, " B");
  if (bytes < 1 << 20) return absl::StrFormat("%.4g KiB", static_cast<double>(bytes) / (1 << 10));
  return absl::StrFormat("%.4g MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

std::string Describe(const CommunicationPath& path) {
  std::string text = path.transport;
  if (!path.provider.empty()) absl::StrAppend(&text, " ", path.provider);
  if (!path.why.empty()) absl::StrAppend(&text, " (", path.why, ")");
  for (const AlgorithmInUse& use : path.algorithms) {
    absl::StrAppend(&text, "; ", use.collective, " of ", Bytes(use.least_bytes));
    if (use.most_bytes != use.least_bytes) absl::StrAppend(&text, " to ", Bytes(use.most_bytes));
    absl::StrAppend(&text, ": ", use.algorithm, use.automatic ? " (auto" : " (",
                    use.automatic && !use.why.empty() ? ": " : "", use.why, ")");
  }
  return text;
}

}  // namespace muster
