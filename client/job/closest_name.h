// Guesses what a mistyped name was meant to be. Pure and thread-safe.
#ifndef MUSTER_CLIENT_JOB_CLOSEST_NAME_H_
#define MUSTER_CLIENT_JOB_CLOSEST_NAME_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace muster {

// Number of insertions, deletions and replacements of a byte that turn one into the other
// (Levenshtein 1966).
int EditDistance(absl::string_view a, absl::string_view b);

// "did you mean "x"?" if one of `names` is close, otherwise "expected one of x, y, z".
std::string Suggestion(absl::string_view wrong, const std::vector<std::string>& names);

}  // namespace muster

#endif  // MUSTER_CLIENT_JOB_CLOSEST_NAME_H_
