// Broadcast from any root. Pure functions.
#ifndef MUSTER_COLLECTIVES_SCHEDULE_BROADCAST_H_
#define MUSTER_COLLECTIVES_SCHEDULE_BROADCAST_H_

#include "collectives/schedule/schedule.h"
#include "collectives/schedule/schedule_request.h"

namespace muster::schedule_internal {

// Along the ring from the root: root, root + 1, ..., root - 1. Every rank sends the vector at most
// once, and an executor that passes on segments as they come fills all links at once.
Schedule ChainBroadcast(const ScheduleRequest& request);

// Binomial tree: a rank at relative number v (root: 0) gets the vector from v without its lowest
// set bit and passes it on to v + 2^k for all 2^k below that bit, the largest subtree first
// (Thakur, Rabenseifner and Gropp 2005, section 4.3).
Schedule BinomialBroadcast(const ScheduleRequest& request);

}  // namespace muster::schedule_internal

#endif  // MUSTER_COLLECTIVES_SCHEDULE_BROADCAST_H_
