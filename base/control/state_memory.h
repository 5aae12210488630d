// How much memory the state of a job takes on a member under each strategy: a pure function, by
// which workers refuse a job and the coordinator a strategy. docs/algorithms.md shows the formulas.
//
// Counted are parameters, gradients, the optimizer's state and the buffers of a step, as
// worker/runtime/step_buffers.h allocates them; not what a model computes in between (activations),
// nor the old part that a member keeps beside the new one while the view changes.
#ifndef MUSTER_BASE_CONTROL_STATE_MEMORY_H_
#define MUSTER_BASE_CONTROL_STATE_MEMORY_H_

#include <cstdint>

#include "base/control/messages.h"
#include "base/control/resources.h"
#include "base/control/strategy.h"

namespace muster {

// Blocks whose gradients or parameters are on their way at a time, where blocks have no place of
// their own: one that is computed, one that is being reduced or gathered, and one between.
inline constexpr int kStepBlockBuffers = 3;

// The members of a view, none of whom is leaving.
struct CrewSize {
  int workers = 1;
  int servers = 0;
  int groups = 1;  // of workers, each with a copy of the state in shards
  bool operator==(const CrewSize&) const = default;
};

// Elements that a member of that role holds: its own shard, and those it has replicas of. Of an
// uneven cut the most that a member may hold.
int64_t HeldElements(int64_t elements, const Strategy& strategy, const CrewSize& crew,
                     MemberRole role);

// Bytes of a member of that role. Requires: crew.workers > 0.
int64_t StateBytes(const StateSize& size, const Strategy& strategy, const CrewSize& crew,
                   MemberRole role);

}  // namespace muster

#endif  // MUSTER_BASE_CONTROL_STATE_MEMORY_H_
