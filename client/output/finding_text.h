// Findings of `muster doctor` as text and JSON. Pure.
#ifndef MUSTER_CLIENT_OUTPUT_FINDING_TEXT_H_
#define MUSTER_CLIENT_OUTPUT_FINDING_TEXT_H_

#include <string>
#include <vector>

#include "client/doctor/host_checks.h"

namespace muster {

// What was found, and the advice on a line below.
std::vector<std::string> FindingLines(const Finding& finding);
std::string FindingJson(const Finding& finding);

}  // namespace muster

#endif  // MUSTER_CLIENT_OUTPUT_FINDING_TEXT_H_
