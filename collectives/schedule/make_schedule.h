// From a request to a schedule. Pure functions, thread-safe.
#ifndef MUSTER_COLLECTIVES_SCHEDULE_MAKE_SCHEDULE_H_
#define MUSTER_COLLECTIVES_SCHEDULE_MAKE_SCHEDULE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "collectives/schedule/schedule.h"
#include "collectives/schedule/schedule_request.h"

namespace muster {

// The part of request.rank. INVALID_ARGUMENT when the request is not valid (schedule_request.h).
// Algorithms that keep the canonical order (KeepsCanonicalOrder) sum the chunk owned by rank c in
// the order c+1, c+2, ..., c (mod size) and give the same bits; the others give the same bits on
// all ranks.
absl::StatusOr<Schedule> MakeSchedule(const ScheduleRequest& request);

// What kAuto stands for; a pure function of what all ranks know alike. `bytes` is the size of the
// whole vector (for reduce-scatter and all-gather the sum over all chunks). Messages up to
// `direct_limit_bytes` go directly (few hops; of an all-reduce in one shot while what a rank sends
// is so little that the hop counts), larger ones around the ring (each link carries each byte once,
// and the executor pipelines). A broadcast goes down the binomial tree up to the limit.
// Collectives with no ring, and barriers, answer kDirect. Never one that leaves the canonical
// order.
Algorithm ChooseAlgorithm(Collective collective, bool half_precision, int64_t bytes, int size,
                          int64_t direct_limit_bytes);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_SCHEDULE_MAKE_SCHEDULE_H_
