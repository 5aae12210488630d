// Broadcast from any root. Pure functions, each of a valid request.
#ifndef MUSTER_COLLECTIVES_SCHEDULE_BROADCAST_H_
#define MUSTER_COLLECTIVES_SCHEDULE_BROADCAST_H_

#include "collectives/schedule/schedule.h"
#include "collectives/schedule/schedule_request.h"

namespace muster::schedule_internal {

// Along the ring from the root: root, root + 1, ..., root - 1. Every rank sends the vector at most
// once, and an executor that passes on segments as they come fills all links at once.
Schedule ChainBroadcast(const ScheduleRequest& request);

// The root sends to each.
Schedule DirectBroadcast(const ScheduleRequest& request);

// Along the binomial tree (binomial_tree.h), the largest subtree first.
Schedule BinomialBroadcast(const ScheduleRequest& request);

// The root scatters the vector in p chunks along the binomial tree, then a ring gathers them (van
// de Geijn's broadcast: Thakur, Rabenseifner and Gropp 2005, section 4.3), leaving out what a rank
// has from the scatter. Nobody sends more than about two vectors or receives more than one.
Schedule ScatterAllGatherBroadcast(const ScheduleRequest& request);

}  // namespace muster::schedule_internal

#endif  // MUSTER_COLLECTIVES_SCHEDULE_BROADCAST_H_
