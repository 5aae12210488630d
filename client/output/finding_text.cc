#include "client/output/finding_text.h"

#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace muster {

std::vector<std::string> FindingLines(const Finding& finding) {
  std::vector<std::string> lines = {
      absl::StrFormat("%-8s %-14s %s", Name(finding.level), finding.subject, finding.found)};
  if (!finding.advice.empty()) lines.push_back(absl::StrFormat("%24s%s", "", finding.advice));
  return lines;
}

std::string FindingJson(const Finding& finding) {
  const nlohmann::ordered_json json = {{"level", Name(finding.level)},
                                       {"subject", finding.subject},
                                       {"found", finding.found},
                                       {"advice", finding.advice}};
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace muster
