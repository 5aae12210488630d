// The ring: rank r sends to r + 1 and receives from r - 1.
//
// Reduce-scatter: chunk c starts at rank c + 1 and collects one contribution per hop until it
// reaches its owner c, which is the canonical order. All-gather: each chunk travels once around.
// All-reduce: one after the other (Patarasuk and Yuan 2009, section 3.2). Bandwidth-optimal: every
// rank sends 2 (p - 1) / p of the vector in an all-reduce, whatever p is. Reduce: reduce-scatter,
// then every owner sends its chunk to the root. Executors cut each step into segments and pass a
// segment on as soon as it is reduced, so this is the segmented ring, too. Pure functions.
#ifndef MUSTER_COLLECTIVES_SCHEDULE_RING_H_
#define MUSTER_COLLECTIVES_SCHEDULE_RING_H_

#include "collectives/schedule/builder.h"
#include "collectives/schedule/schedule.h"
#include "collectives/schedule/schedule_request.h"

namespace muster::schedule_internal {

// A ring would round at every hop: sums of more than two halves exchange contributions instead
// (direct.h). Of two there is one hop, hence one rounding.
inline bool RingReducesDirectly(const ScheduleRequest& request) {
  return request.half_precision && request.size > 2;
}

// Each requires a valid request of its collective.
Schedule RingAllReduce(const ScheduleRequest& request);
Schedule RingReduceScatter(const ScheduleRequest& request);
Schedule RingAllGather(const ScheduleRequest& request);
Schedule RingReduce(const ScheduleRequest& request);

// The gathering phase alone, in a team of which member i has the blocks i .. i + has[i] - 1 and
// gets the others. `own` is where this rank's own block lies before, and may be elsewhere than in
// `place`.
void AddRingAllGather(ScheduleBuilder& builder, const Team& team, const std::vector<int>& has,
                      Slice own, const Place& place);

}  // namespace muster::schedule_internal

#endif  // MUSTER_COLLECTIVES_SCHEDULE_RING_H_
