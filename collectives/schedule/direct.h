// The direct exchange: every rank sends each chunk straight to whoever needs it.
//
// Reduce-scatter: the owner of a chunk gets the contributions of all others into scratch and sums
// them in one step, in the canonical order, rounding once. All-gather: the owner sends its chunk to
// every other. All-reduce: one after the other, two hops for any number of ranks: the traffic of a
// parameter server of which every rank is a shard ("sharded star"). It moves as many elements as
// the ring (pairwise exchange: Thakur, Rabenseifner and Gropp 2005, section 4.4) at p - 1 messages
// in flight and (p - 1) / p of a vector of scratch. Pure functions.
#ifndef MUSTER_COLLECTIVES_SCHEDULE_DIRECT_H_
#define MUSTER_COLLECTIVES_SCHEDULE_DIRECT_H_

#include "collectives/schedule/builder.h"
#include "collectives/schedule/schedule.h"
#include "collectives/schedule/schedule_request.h"

namespace muster::schedule_internal {

// Each requires a valid request of its collective.
Schedule DirectAllReduce(const ScheduleRequest& request);
Schedule DirectReduceScatter(const ScheduleRequest& request);
Schedule DirectAllGather(const ScheduleRequest& request);

// The reducing phase alone: this rank's chunk comes to `result`. The input must hold all chunks.
void AddDirectReduceScatter(ScheduleBuilder& builder, Slice result);

}  // namespace muster::schedule_internal

#endif  // MUSTER_COLLECTIVES_SCHEDULE_DIRECT_H_
