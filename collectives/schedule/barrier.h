// The dissemination barrier (Hensgen, Finkel and Manber 1988). Pure function.
//
// In round k rank r tells r + 2^k what it knows and hears from r - 2^k; after ceil(log2 p) rounds
// everyone has heard, through others, from everyone. A message of nothing would not tie a round to
// the one before where steps overlap, so a message is a token of one element, and the token of
// round k + 1 is the sum of the own and the received token of round k: it cannot leave before that
// one came. The values mean nothing; what counts is that they depend on every rank.
#ifndef MUSTER_COLLECTIVES_SCHEDULE_BARRIER_H_
#define MUSTER_COLLECTIVES_SCHEDULE_BARRIER_H_

#include "collectives/schedule/schedule.h"
#include "collectives/schedule/schedule_request.h"

namespace muster::schedule_internal {

Schedule DisseminationBarrier(const ScheduleRequest& request);

}  // namespace muster::schedule_internal

#endif  // MUSTER_COLLECTIVES_SCHEDULE_BARRIER_H_
