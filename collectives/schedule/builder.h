// What the generators share: names for the slices of a request, teams of ranks, steps with nothing
// to move left out, and the order of sends and receives that cannot deadlock. Private to this
// folder.
#ifndef MUSTER_COLLECTIVES_SCHEDULE_BUILDER_H_
#define MUSTER_COLLECTIVES_SCHEDULE_BUILDER_H_

#include <cstdint>
#include <functional>
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

// `count` elements that start `offset` elements into `whole`.
inline Slice Part(const Slice& whole, int64_t offset, int64_t count) {
  return {whole.buffer, whole.offset + offset, count};
}

// The blocks first .. last - 1 of a row of blocks.
struct Run {
  int first = 0;
  int last = 0;
};

// The blocks first, first + 1, ..., first + count - 1 modulo size, as one or two runs.
// Requires: first >= 0, 0 <= count <= size.
std::vector<Run> RunsOf(int64_t first, int count, int size);

// Where a run of blocks lies.
using Place = std::function<Slice(const Run&)>;

// Ranks that number themselves 0 .. size() - 1, and which of them this one is.
struct Team {
  std::vector<Rank> members;
  int index = 0;
  int size() const { return static_cast<int>(members.size()); }
  // Requires: number > -size().
  Rank At(int64_t number) const { return members[Wrap(number, size())]; }
};

class ScheduleBuilder {
 public:
  // Requires: ValidateRequest(request) is OK; `request` outlives the builder.
  explicit ScheduleBuilder(const ScheduleRequest& request);

  const ScheduleRequest& request() const { return request_; }
  Rank rank() const { return request_.rank; }
  int size() const { return request_.size; }
  // All ranks; `first` is number 0.
  Team Everyone(Rank first = 0) const;

  // Elements in the chunk of a rank (ChunkCounts), and before it.
  int64_t ChunkCount(Rank chunk) const { return offsets_[chunk + 1] - offsets_[chunk]; }
  int64_t ChunkOffset(Rank chunk) const { return offsets_[chunk]; }
  // The chunks of a run as a part of a slice that holds the whole vector.
  Slice ChunksIn(const Slice& whole, const Run& run) const;

  // The memory that holds the whole vector: what this rank contributes to, or gets of it, all.
  // All-reduce, reduce-scatter, broadcast, reduce; scatter on the root, push on workers.
  Slice WholeInput() const;
  // All-reduce, all-gather, broadcast; reduce and gather on the root, pull on workers.
  Slice WholeOutput() const;
  // Where this rank's contribution to a chunk lies. All-gather, gather, pull: only its own chunk.
  Slice Input(Rank chunk) const;
  // Where the result of a chunk belongs. Reduce-scatter, scatter, push: only its own chunk.
  Slice Output(Rank chunk) const;

  // Appends a step; one that moves nothing is left out (its peer leaves out the other half).
  void Add(ScheduleStep step);
  // target = source, unless they are the same memory.
  void AddCopy(Slice source, Slice target);
  // Output = the sum of whole vectors, one of each rank, each chunk in its canonical order.
  void AddWholeSum(const std::vector<Slice>& contributions);
  // One round in which member i of `size` sends to i + distance and receives from i - distance; 0 <
  // distance < size. Whoever stands at an odd multiple of `distance` receives first: each cycle of
  // the shift has at least one member that sends first (those below `distance`) and one that
  // receives first (the next ones), so no round can deadlock even where sends wait for their
  // receives.
  void AddShift(int index, int distance, std::vector<ScheduleStep> sends,
                std::vector<ScheduleStep> receives);
  // The same among all ranks, with one message.
  void AddExchange(int distance, ScheduleStep send, ScheduleStep receive);

  // `count` more elements of scratch.
  Slice TakeScratch(int64_t count);
  Schedule Take() { return std::move(schedule_); }

 private:
  int64_t Total() const { return offsets_.back(); }

  const ScheduleRequest& request_;
  std::vector<int64_t> offsets_;  // per chunk, within the whole vector; and its end
  Schedule schedule_;
};

}  // namespace muster::schedule_internal

#endif  // MUSTER_COLLECTIVES_SCHEDULE_BUILDER_H_
