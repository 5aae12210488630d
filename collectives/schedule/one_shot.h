// All-reduce in one hop: every rank sends its whole vector to every other, and adds all of them up
// itself. Pure function.
//
// Half the hops of the direct exchange and half its messages, for p / 2 times the bytes and p times
// the additions: for vectors so short that latency is all that counts. Every rank adds each chunk
// in that chunk's canonical order, so all hold its bits; 16-bit floats are rounded once.
#ifndef MUSTER_COLLECTIVES_SCHEDULE_ONE_SHOT_H_
#define MUSTER_COLLECTIVES_SCHEDULE_ONE_SHOT_H_

#include "collectives/schedule/schedule.h"
#include "collectives/schedule/schedule_request.h"

namespace muster::schedule_internal {

// Requires: a valid all-reduce request.
Schedule OneShotAllReduce(const ScheduleRequest& request);

}  // namespace muster::schedule_internal

#endif  // MUSTER_COLLECTIVES_SCHEDULE_ONE_SHOT_H_
