// Which rank an error is about, carried inside the status so that it survives annotation.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_CULPRIT_H_
#define MUSTER_COLLECTIVES_TRANSPORT_CULPRIT_H_

#include <optional>

#include "absl/status/status.h"
#include "base/ids.h"

namespace muster {

// `status` with the mark that `rank` is held to be dead or late. Requires: status is not OK.
absl::Status WithCulprit(absl::Status status, std::optional<Rank> rank);

// The rank marked, if any.
std::optional<Rank> CulpritOf(const absl::Status& status);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_CULPRIT_H_
