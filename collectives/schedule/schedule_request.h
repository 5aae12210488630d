// What a schedule is asked for: one collective, from the view of one rank.
//
// All ranks of a communicator must ask with equal fields, except `rank` and `in_place`. A request
// is a plain value; ValidateRequest says whether it can be scheduled.
#ifndef MUSTER_COLLECTIVES_SCHEDULE_SCHEDULE_REQUEST_H_
#define MUSTER_COLLECTIVES_SCHEDULE_SCHEDULE_REQUEST_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
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

  // Broadcast, reduce, send-receive: number of elements; all-reduce as well, if `counts` is empty.
  // All-to-all: elements of every block, if `counts` is empty. Otherwise 0.
  int64_t count = 0;
  // Reduce-scatter, all-gather, gather, scatter, push, pull: elements of each rank's chunk, in rank
  // order.
  // All-reduce: empty for chunks as ChunkOf cuts them, or the same; they say whose order each
  // element is summed in. All-to-all: empty, or size * size entries: counts[a * size + b] goes from
  // a to b. Chunks and blocks may be uneven and empty. Otherwise empty.
  std::vector<int64_t> counts;

  // Broadcast, scatter, send-receive: who has the data. Reduce, gather: who gets it. The star
  // all-reduce: the server. Otherwise 0.
  Rank root = 0;
  // Send-receive: who gets the data; another than the root. Otherwise 0.
  Rank destination = 0;

  // Push, pull: how many ranks are workers, ranks 0 .. contributors - 1; the others are servers.
  // Otherwise 0.
  int contributors = 0;
  // Push: the same vector cut into a chunk for each worker, which says whose order an element is
  // summed in, whoever owns it: in chunk c the workers c+1, c+2, ..., c. Otherwise empty.
  std::vector<int64_t> order_counts;

  // Hierarchical: the host of each rank, any numbers; hosts may have different numbers of ranks.
  // Otherwise empty.
  std::vector<int32_t> hosts;

  // Input and output are one memory:
  //   all-reduce, broadcast, reduce   the same buffer;
  //   reduce-scatter, scatter, push   the output is the rank's own chunk of the input (the other
  //                                   chunks of the input keep their values);
  //   all-gather, gather, pull        the input is the rank's own chunk of the output.
  // Reduce, gather and scatter: of the root alone, ignored elsewhere; push and pull: of workers.
  // All-to-all and send-receive cannot. The schedule names only the larger of the two (kInput where
  // the output is a chunk, otherwise kOutput), so that one memory has one name and hazards can be
  // found by name. Ranks may differ in this.
  bool in_place = false;

  // The elements are reduced and are f16 or bf16: sums must not be rounded at each hop. Algorithms
  // that forward partial sums are refused (docs/algorithms.md).
  bool half_precision = false;

  bool operator==(const ScheduleRequest&) const = default;
};

// `total` elements cut into `parts` as ChunkOf cuts them; a `counts` for even chunks.
std::vector<int64_t> EvenCounts(int64_t total, int parts);

// What may be asked for, apart from kAuto.
absl::Span<const Algorithm> AlgorithmsOf(Collective collective);
// The chunk of rank c is summed c+1, c+2, ..., c, whatever the size: such algorithms give the same
// bits. True for collectives that do not reduce.
bool KeepsCanonicalOrder(Collective collective, Algorithm algorithm);

// Elements of the whole vector, of which each rank owns a chunk; 0 for all-to-all and barrier.
int64_t VectorCount(const ScheduleRequest& request);
// Elements of each rank's chunk of it.
std::vector<int64_t> ChunkCounts(const ScheduleRequest& request);
// Ranks whose contributions a sum has, from rank 0 on: the workers of a push, otherwise all.
int ContributorCount(const ScheduleRequest& request);
// Elements summed in the order of each of them: those that it owns, but in a push order_counts.
std::vector<int64_t> OrderCounts(const ScheduleRequest& request);
// Elements of the input, of the output, for request.rank. Requires: a valid request.
int64_t InputCount(const ScheduleRequest& request);
int64_t OutputCount(const ScheduleRequest& request);
// Elements that `from` sends to `to` in an all-to-all.
int64_t BlockCount(const ScheduleRequest& request, Rank from, Rank to);
// First element of the chunk of request.rank. Requires: `counts` has an entry per rank.
int64_t OwnOffset(const ScheduleRequest& request);
// request.in_place where it counts for request.rank.
bool SharesMemory(const ScheduleRequest& request);

// INVALID_ARGUMENT names the field, its value and what was expected.
absl::Status ValidateRequest(const ScheduleRequest& request);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_SCHEDULE_SCHEDULE_REQUEST_H_
