// The symbolic checker: proves that a set of schedules, one per rank, does its collective.
//
// It runs all ranks over symbols instead of numbers, strictly in step order and under rendezvous (a
// send and its receive complete together, or not at all), and returns the first error it finds,
// naming rank and step:
//   - a slice outside its buffer, an empty step, a wrong peer, a buffer that may not be written, or
//   one
//     that in-place use gives no name; a target that overlaps a source without being equal to it;
//   - the n-th send from a to b and the n-th receive of b from a differ in count, or one is
//   missing;
//   - a deadlock;
//   - a value is read before it was written;
//   - a sum of elements of different positions, and, element by element, a result that is not the
//     canonical expression: every contribution once, for the chunk of rank c in the order c+1, ...,
//     c from left to right (for 16-bit types in one kReduce, that is, rounded once); completes_sum
//     set where the sum is not whole, or missing where it is;
//   - for algorithms that leave the canonical order: a contribution that is missing or added twice,
//     or ranks whose sums differ by more than the exchange of operands (which keeps the bits);
//   - a result that is not of the right element of the right rank, for collectives that only move;
//   - an input element changed that the contract keeps;
//   - hops, messages, elements sent, scratch or additions other than the cost table says.
//
// What it implies for executors that overlap steps: messages of a pair match by their order, so the
// values read do not depend on timing as long as hazards within a rank are kept (a Kahn network);
// and since the strict order completes, every executor that lets the oldest unfinished step of each
// rank go on completes too (its waits are a subset of the strict ones).
#ifndef MUSTER_COLLECTIVES_SCHEDULE_CHECKER_H_
#define MUSTER_COLLECTIVES_SCHEDULE_CHECKER_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "collectives/schedule/schedule.h"
#include "collectives/schedule/schedule_request.h"

namespace muster {

// requests[r] is what rank r asked for, schedules[r] what it would run. INVALID_ARGUMENT when the
// requests do not fit together, FAILED_PRECONDITION when the schedules are wrong. Takes time and
// memory in the order of all elements moved: for tests, not for the data path.
absl::Status CheckSchedules(absl::Span<const ScheduleRequest> requests,
                            absl::Span<const Schedule> schedules);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_SCHEDULE_CHECKER_H_
