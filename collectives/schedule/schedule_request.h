// What a schedule is asked for: one collective, from the view of one rank.
//
// All ranks of a communicator must ask with equal fields, except `rank` and `in_place`. A request
// is a plain value; ValidateRequest says whether it can be scheduled.
#ifndef MUSTER_COLLECTIVES_SCHEDULE_SCHEDULE_REQUEST_H_
#define MUSTER_COLLECTIVES_SCHEDULE_SCHEDULE_REQUEST_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "collectives/schedule/schedule.h"

namespace muster {

// Limits that keep every offset and byte count within int64.
inline constexpr int kMaxScheduleRanks = 4096;
inline constexpr int64_t kMaxScheduleElements = int64_t{1} << 44;

struct ScheduleRequest {
  Collective collective = Collective::kAllReduce;
  Algorithm algorithm = Algorithm::kRing;  // never kAuto: resolve it with ChooseAlgorithm first
  Rank rank = 0;
  int size = 1;  // number of ranks

  // All-reduce, broadcast: number of elements. Otherwise 0.
  int64_t count = 0;
  // Reduce-scatter, all-gather: elements of each rank's chunk, in rank order; chunks may be uneven
  // and empty. Otherwise empty.
  std::vector<int64_t> counts;

  Rank root = 0;  // broadcast: who has the data. Otherwise 0.

  // Input and output are one memory:
  //   all-reduce, broadcast   the same buffer;
  //   reduce-scatter          the output is the rank's own chunk of the input (the other chunks of
  //   the
  //                           input keep their values);
  //   all-gather              the input is the rank's own chunk of the output.
  // The schedule then names only the larger of the two (kInput for reduce-scatter, otherwise
  // kOutput), so that one memory has one name and hazards can be found by name. Ranks may differ in
  // this.
  bool in_place = false;

  // The elements are f16 or bf16: sums must not be rounded at each hop (docs/algorithms.md).
  bool half_precision = false;
};

// `total` elements cut into `parts` as ChunkOf cuts them; a `counts` for even chunks.
std::vector<int64_t> EvenCounts(int64_t total, int parts);

// Elements of the input, of the output, for request.rank. Requires: a valid request.
int64_t InputCount(const ScheduleRequest& request);
int64_t OutputCount(const ScheduleRequest& request);

// INVALID_ARGUMENT names the field, its value and what was expected.
absl::Status ValidateRequest(const ScheduleRequest& request);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_SCHEDULE_SCHEDULE_REQUEST_H_
