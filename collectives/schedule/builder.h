// What the generators share: names for the slices of a request, steps with nothing to move left
// out, and the order of sends and receives that cannot deadlock. Private to this folder.
#ifndef MUSTER_COLLECTIVES_SCHEDULE_BUILDER_H_
#define MUSTER_COLLECTIVES_SCHEDULE_BUILDER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "collectives/schedule/schedule.h"
#include "collectives/schedule/schedule_request.h"

namespace muster::schedule_internal {

// value mod size in 0 .. size - 1, for value > -size.
inline Rank Wrap(int64_t value, int size) { return static_cast<Rank>((value + size) % size); }

// Steps, as values.
ScheduleStep Send(Rank peer, Slice source);
ScheduleStep Recv(Rank peer, Slice target);
ScheduleStep RecvReduce(Rank peer, Slice source, Slice target, bool completes_sum);

class ScheduleBuilder {
 public:
  // Requires: ValidateRequest(request) is OK; `request` outlives the builder.
  explicit ScheduleBuilder(const ScheduleRequest& request);

  const ScheduleRequest& request() const { return request_; }
  Rank rank() const { return request_.rank; }
  int size() const { return request_.size; }

  // Elements in the chunk of a rank. All-reduce cuts its vector with ChunkOf.
  int64_t ChunkCount(Rank chunk) const { return counts_[chunk]; }
  // Where this rank's contribution to a chunk lies. All-gather: only its own chunk.
  Slice Input(Rank chunk) const;
  // Where the result of a chunk belongs. Reduce-scatter: only its own chunk.
  Slice Output(Rank chunk) const;
  // The whole vector of a broadcast; the input exists on the root only.
  Slice WholeInput() const;
  Slice WholeOutput() const;

  // Appends a step; one that moves nothing is left out (its peer leaves out the other half).
  void Add(ScheduleStep step);
  // target = source, unless they are the same memory.
  void AddCopy(Slice source, Slice target);
  // One round in which every rank sends to rank + distance and receives from rank - distance; 0 <
  // distance < size. Whoever stands at an odd multiple of `distance` receives first: each cycle of
  // the shift has at least one rank that sends first (those below `distance`) and one that receives
  // first (the next ones), so no round can deadlock even where sends wait for their receives.
  void AddExchange(int distance, ScheduleStep send, ScheduleStep receive);

  void SetScratchCount(int64_t count) { schedule_.scratch_count = count; }
  Schedule Take() { return std::move(schedule_); }

 private:
  const ScheduleRequest& request_;
  std::vector<int64_t> counts_;   // per chunk
  std::vector<int64_t> offsets_;  // per chunk, within the whole vector
  Schedule schedule_;
};

}  // namespace muster::schedule_internal

#endif  // MUSTER_COLLECTIVES_SCHEDULE_BUILDER_H_
