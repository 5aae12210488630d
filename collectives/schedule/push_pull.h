// Push and pull, the data plane of parameter servers: chunks go straight between their owners and
// the workers.
//
// Push: every worker sends each owner its contribution to the owner's chunk. The owner sums them
// like the direct exchange (direct.h) in one step, rounded once, for each piece of its chunk that
// has one order; a server that is no worker lets one contribution wait where the sum will lie.
// Pull: every owner sends its chunk to each worker. With n workers, an owner of s elements gets n s
// by a push and sends n s by a pull (less its own part, if it is a worker), which is the least
// there is where nobody else adds.
//
// Rounds. In round t the worker w has to do with the owner number (w + t) mod m of m: no two owners
// that are busy in a round differ by more than one in the number of workers they have to do with,
// so no link waits while another is crowded. Pure functions.
#ifndef MUSTER_COLLECTIVES_SCHEDULE_PUSH_PULL_H_
#define MUSTER_COLLECTIVES_SCHEDULE_PUSH_PULL_H_

#include "collectives/schedule/schedule.h"
#include "collectives/schedule/schedule_request.h"

namespace muster::schedule_internal {

// Each requires a valid request of its collective.
Schedule DirectPush(const ScheduleRequest& request);
Schedule DirectPull(const ScheduleRequest& request);

}  // namespace muster::schedule_internal

#endif  // MUSTER_COLLECTIVES_SCHEDULE_PUSH_PULL_H_
