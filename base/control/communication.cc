#include "base/control/communication.h"

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace muster {

std::string Describe(const CommunicationPath& path) {
  std::string text = path.transport;
  if (!path.provider.empty()) absl::StrAppend(&text, " ", path.provider);
  if (!path.why.empty()) absl::StrAppend(&text, " (", path.why, ")");
  for (const AlgorithmInUse& use : path.algorithms) {
    absl::StrAppend(&text, "; ", use.collective, " of ", ByteText(use.least_bytes));
    if (use.most_bytes != use.least_bytes) absl::StrAppend(&text, " to ", ByteText(use.most_bytes));
    absl::StrAppend(&text, ": ", use.algorithm, use.automatic ? " (auto" : " (",
                    use.automatic && !use.why.empty() ? ": " : "", use.why, ")");
  }
  return text;
}

}  // namespace muster
