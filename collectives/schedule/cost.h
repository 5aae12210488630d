// The cost table: what each (collective, algorithm) puts on the wire, as formulas that do not look
// at the schedule. docs/algorithms.md shows the same rows with their sources; the checker holds
// every schedule to them.
#ifndef MUSTER_COLLECTIVES_SCHEDULE_COST_H_
#define MUSTER_COLLECTIVES_SCHEDULE_COST_H_

#include <cstdint>

#include "collectives/schedule/schedule.h"
#include "collectives/schedule/schedule_request.h"

namespace muster {

// With a latency a per message, b per element on the wire and c per addition, a schedule takes at
// least about max over ranks of hops * a + elements_sent * b + elements_reduced * c.
struct ScheduleCost {
  // The longest chain of messages, each of which carries data of the one before (the factor of the
  // latency term; messages to different peers fly together). Exact where HopsAreExact, otherwise an
  // upper bound. Of the whole collective, not of one rank.
  int64_t hops = 0;
  // What request.rank sends: messages and elements. Exact.
  int64_t messages_sent = 0;
  int64_t elements_sent = 0;
  // Elements of scratch that request.rank needs. Exact.
  int64_t scratch_count = 0;
  // Additions (or other operations of two elements) that request.rank makes. Exact.
  int64_t elements_reduced = 0;
  bool operator==(const ScheduleCost&) const = default;
};

// Requires: ValidateRequest(request) is OK.
ScheduleCost CostOf(const ScheduleRequest& request);
bool HopsAreExact(const ScheduleRequest& request);

// The same read off the schedule of one rank, but for `hops`, which no rank sees alone (0).
ScheduleCost MeasuredCost(const Schedule& schedule);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_SCHEDULE_COST_H_
