// Workers that leave a view hand their residuals (worker/compression/residuals.h) to workers that
// stay, so that what their gradients lacked is not lost: the i-th that leaves to the i-th that
// stays, around again from the last. Pure but for the communication.
#ifndef MUSTER_WORKER_RUNTIME_RESIDUAL_HANDOVER_H_
#define MUSTER_WORKER_RUNTIME_RESIDUAL_HANDOVER_H_

#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/control/messages.h"
#include "collectives/engine/communicator.h"

namespace muster {

// Who gives to whom in the view, by rank.
std::vector<std::pair<Rank, Rank>> ResidualHandovers(const View& view);

// What comes here.
struct ResidualsGiven {
  Incarnation from;
  std::vector<float> values;
};

// Every rank of the view calls it, the communicator's ranks being its members. `carried`: what this
// rank gives if it leaves, of `count` elements; empty: nothing was carried yet. On an error
// `culprit` is the rank held responsible, if one is known.
absl::StatusOr<std::vector<ResidualsGiven>> HandOverResiduals(Communicator& communicator,
                                                              const View& view,
                                                              absl::Span<const float> carried,
                                                              int64_t count, absl::Duration timeout,
                                                              std::optional<Rank>* culprit);

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_RESIDUAL_HANDOVER_H_
