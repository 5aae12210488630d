// All-reduce through one server, the classic parameter server: every rank pushes its vector to the
// root, which sums and sends the sum back. Pure function.
//
// Two hops, but the root receives and sends (p - 1) vectors: its link saturates, which is what this
// is kept to show and to compare with. The server keeps every contribution and sums each chunk in
// one step in the canonical order, rounding once, so that ring, direct and star give the same bits.
// With every rank the server of its chunk (the sharded star) it is the direct all-reduce.
#ifndef MUSTER_COLLECTIVES_SCHEDULE_STAR_H_
#define MUSTER_COLLECTIVES_SCHEDULE_STAR_H_

#include "collectives/schedule/builder.h"
#include "collectives/schedule/schedule.h"
#include "collectives/schedule/schedule_request.h"

namespace muster::schedule_internal {

// Requires: a valid all-reduce request.
Schedule StarAllReduce(const ScheduleRequest& request);

// The push alone: the canonical sum of the whole vector comes to the root's output. All-reduce,
// reduce.
void AddStarReduce(ScheduleBuilder& builder);

}  // namespace muster::schedule_internal

#endif  // MUSTER_COLLECTIVES_SCHEDULE_STAR_H_
