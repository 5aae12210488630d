// All-reduce by recursive doubling: log2 p rounds, in each of which pairs exchange whole partial
// sums and both add (Thakur, Rabenseifner and Gropp 2005, section 4). Pure function.
//
// The fewest hops for a vector so short that sending it whole costs nothing. Where p is no power of
// two, the first 2 (p - q) ranks, q being the largest power of two below p, fold in pairs before
// (even ranks hand their vector to the next) and out after.
//
// Not the canonical order, but every rank computes the same tree of sums up to exchanged operands,
// so all hold the same bits. Partial sums travel: not for 16-bit floats.
#ifndef MUSTER_COLLECTIVES_SCHEDULE_RECURSIVE_DOUBLING_H_
#define MUSTER_COLLECTIVES_SCHEDULE_RECURSIVE_DOUBLING_H_

#include "collectives/schedule/schedule.h"
#include "collectives/schedule/schedule_request.h"

namespace muster::schedule_internal {

// Requires: a valid all-reduce request.
Schedule RecursiveDoublingAllReduce(const ScheduleRequest& request);

}  // namespace muster::schedule_internal

#endif  // MUSTER_COLLECTIVES_SCHEDULE_RECURSIVE_DOUBLING_H_
