#include "client/commands/doctor.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/commands/job_commands.h"
#include "client/coordinator_client.h"
#include "client/doctor/host_checks.h"
#include "client/output/finding_text.h"

namespace muster {
namespace {

Finding CheckCoordinator(const std::string& address) {
  CoordinatorClient client({.address = address});
  const absl::Time before = absl::Now();
  const auto members = client.ListMembers();
  Finding finding{.subject = "coordinator"};
  if (members.ok()) {
    finding.found =
        absl::StrFormat("%s answers in %.1f ms; %d workers", address,
                        absl::ToDoubleMilliseconds(absl::Now() - before), members->members_size());
  } else {
    finding.level = FindingLevel::kError;
    finding.found = std::string(members.status().message());
  }
  return finding;
}

}  // namespace

int DoctorCommand(const DoctorOptions& options, Console* console) {
  std::vector<Finding> findings = CheckHost(ReadHostFacts());
  if (!options.coordinator.empty()) findings.push_back(CheckCoordinator(options.coordinator));
  for (const Finding& finding : findings) {
    for (const std::string& line :
         options.json ? std::vector<std::string>{FindingJson(finding)} : FindingLines(finding)) {
      console->Line(line);
    }
  }
  if (!console->write_status().ok()) return Complain(console->write_status(), 1);
  const bool sick = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.level == FindingLevel::kError;
  });
  return sick ? 1 : 0;
}

}  // namespace muster
