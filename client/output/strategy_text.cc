#include "client/output/strategy_text.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/text.h"
#include "client/output/job_text.h"

namespace muster {
namespace {

std::string Remark(const v1::StrategyCandidate& candidate, bool automatic) {
  if (!candidate.fits()) return candidate.obstacle();
  if (candidate.chosen() && candidate.in_force()) return automatic ? "in force" : "in force, best";
  if (candidate.in_force()) return "in force";
  return candidate.chosen() ? "the choice" : "";
}

}  // namespace

std::string StrategyChoiceText(const v1::ExplainStrategyResponse& choice) {
  std::vector<std::vector<std::string>> rows = {
      {"STRATEGY", "WORKER", "SERVER", "COMMUNICATION", "FITS", "REMARK"}};
  for (const v1::StrategyCandidate& each : choice.candidates()) {
    rows.push_back({each.text(), ByteText(each.worker_bytes()),
                    each.server_bytes() > 0 ? ByteText(each.server_bytes()) : "-",
                    each.has_communication_seconds()
                        ? absl::StrFormat("%.3g ms", each.communication_seconds() * 1e3)
                        : "not known",
                    each.fits() ? "yes" : "no", Remark(each, choice.automatic())});
  }
  return absl::StrCat(
      "policy ", choice.automatic() ? "auto" : "manual, auto would choose as follows", "; ",
      choice.workers(), choice.workers() == 1 ? " worker" : " workers",
      choice.servers() > 0
          ? absl::StrCat(", ", choice.servers(),
                         choice.servers() == 1 ? " parameter server" : " parameter servers")
          : "",
      "\n", FormatTable(rows), choice.reason(), "\n");
}

}  // namespace muster
