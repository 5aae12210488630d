// Reduce, gather and scatter: to or from one root. Pure functions, each of a valid request.
//
// Direct: every rank deals with the root itself. Binomial tree (binomial_tree.h): a rank deals for
// its whole subtree, so the root has log2 p messages instead of p - 1 (Thakur, Rabenseifner and
// Gropp 2005, section 4). Chunks may be uneven and empty.
#ifndef MUSTER_COLLECTIVES_SCHEDULE_ROOTED_H_
#define MUSTER_COLLECTIVES_SCHEDULE_ROOTED_H_

#include "collectives/schedule/schedule.h"
#include "collectives/schedule/schedule_request.h"

namespace muster::schedule_internal {

// The root gets all contributions and sums each chunk in the canonical order, rounding once.
Schedule DirectReduce(const ScheduleRequest& request);
// Sums on the way up, in an order of its own: partial sums travel, so not for 16-bit floats.
Schedule BinomialReduce(const ScheduleRequest& request);

Schedule DirectGather(const ScheduleRequest& request);
Schedule BinomialGather(const ScheduleRequest& request);
Schedule DirectScatter(const ScheduleRequest& request);
Schedule BinomialScatter(const ScheduleRequest& request);

}  // namespace muster::schedule_internal

#endif  // MUSTER_COLLECTIVES_SCHEDULE_ROOTED_H_
