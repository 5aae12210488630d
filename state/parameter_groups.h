// Parameter groups: what a job says of some tensors by name: weight decay, learning rate, frozen.
//
// A pattern is a whole name in which '*' stands for any text (dots included, and none) and '?' for
// any one character. A tensor is in the first group, in the order of the job, that has a pattern
// for it, and takes everything from that group; one in no group has the optimizer's settings.
//
// Pure; thread-safe.
#ifndef MUSTER_STATE_PARAMETER_GROUPS_H_
#define MUSTER_STATE_PARAMETER_GROUPS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/job_spec.h"
#include "state/layout.h"

namespace muster {

// True if `pattern` names `name`.
bool MatchesPattern(absl::string_view pattern, absl::string_view name);

// Writes the settings of the groups into the tensors, before their layout is made. INVALID_ARGUMENT
// names a pattern that matches no tensor, with the names there are; a group that is left without
// tensors since earlier groups have them all; or says that all tensors are frozen.
absl::Status ApplyParameterGroups(absl::Span<const ParameterGroupSpec> groups,
                                  absl::Span<TensorSpec> tensors);

}  // namespace muster

#endif  // MUSTER_STATE_PARAMETER_GROUPS_H_
