// All-to-all, and send-receive between two ranks. Pure functions, each of a valid request. Blocks
// may be uneven and empty.
#ifndef MUSTER_COLLECTIVES_SCHEDULE_ALL_TO_ALL_H_
#define MUSTER_COLLECTIVES_SCHEDULE_ALL_TO_ALL_H_

#include "collectives/schedule/schedule.h"
#include "collectives/schedule/schedule_request.h"

namespace muster::schedule_internal {

// Pairwise exchange: in round d every rank sends to the one d ahead (Thakur, Rabenseifner and Gropp
// 2005, section 4). Each element crosses the wire once.
Schedule DirectAllToAll(const ScheduleRequest& request);

// Bruck et al. 1997: a block that must go d ranks ahead goes 2^k for each bit k of d, lowest first,
// together with all others that have that bit. ceil(log2 p) messages instead of p - 1, each element
// sent up to log2 p times, packed in scratch: for small blocks.
Schedule BruckAllToAll(const ScheduleRequest& request);

// The root's input to the destination's output; nothing elsewhere.
Schedule DirectSendReceive(const ScheduleRequest& request);

}  // namespace muster::schedule_internal

#endif  // MUSTER_COLLECTIVES_SCHEDULE_ALL_TO_ALL_H_
