#include "collectives/schedule/ring.h"

#include <algorithm>

#include "collectives/schedule/direct.h"

namespace muster::schedule_internal {
namespace {

// Where the partial sums that pass through a rank wait for their next hop. All-reduce keeps them
// where the result will lie. Reduce-scatter may not touch the other chunks, so two scratch slots
// take turns: one is being received while the other is being sent.
class PartialSums {
 public:
  explicit PartialSums(ScheduleBuilder& builder) : builder_(builder) {
    if (builder.request().collective == Collective::kAllReduce) return;
    // The chunks of rank and rank - 1 do not pass through: one ends here, the other starts here.
    for (Rank chunk = 0; chunk < builder.size(); ++chunk) {
      if (chunk == builder.rank() || chunk == Wrap(builder.rank() - 1, builder.size())) continue;
      slot_count_ = std::max(slot_count_, builder.ChunkCount(chunk));
    }
    builder.SetScratchCount(std::min(2, std::max(0, builder.size() - 2)) * slot_count_);
  }

  // The place of the partial sum of `chunk` received in round `round`.
  Slice At(Rank chunk, int round) const {
    if (builder_.request().collective == Collective::kAllReduce) return builder_.Output(chunk);
    return {BufferName::kScratch, (round % 2) * slot_count_, builder_.ChunkCount(chunk)};
  }

 private:
  ScheduleBuilder& builder_;
  int64_t slot_count_ = 0;
};

void AddRingReduceScatter(ScheduleBuilder& builder) {
  const int size = builder.size();
  const Rank rank = builder.rank();
  if (size == 1) return builder.AddCopy(builder.Input(0), builder.Output(0));
  const PartialSums partial(builder);
  for (int round = 0; round < size - 1; ++round) {
    const Rank outgoing = Wrap(rank - 1 - round, size);
    const Rank incoming = Wrap(rank - 2 - round, size);
    const bool last = round == size - 2;
    builder.AddExchange(
        1,
        Send(Wrap(rank + 1, size),
             round == 0 ? builder.Input(outgoing) : partial.At(outgoing, round - 1)),
        RecvReduce(Wrap(rank - 1, size), builder.Input(incoming),
                   last ? builder.Output(incoming) : partial.At(incoming, round), last));
  }
}

// `own` is where this rank's chunk lies before the gather; the other chunks come to Output.
void AddRingAllGather(ScheduleBuilder& builder, Slice own) {
  const int size = builder.size();
  const Rank rank = builder.rank();
  builder.AddCopy(own, builder.Output(rank));
  for (int round = 0; round < size - 1; ++round) {
    const Rank outgoing = Wrap(rank - round, size);
    const Rank incoming = Wrap(rank - 1 - round, size);
    builder.AddExchange(1, Send(Wrap(rank + 1, size), round == 0 ? own : builder.Output(outgoing)),
                        Recv(Wrap(rank - 1, size), builder.Output(incoming)));
  }
}

}  // namespace

Schedule RingAllReduce(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  if (request.half_precision) {
    AddDirectReduceScatter(builder);
  } else {
    AddRingReduceScatter(builder);
  }
  AddRingAllGather(builder, builder.Output(request.rank));
  return builder.Take();
}

Schedule RingReduceScatter(const ScheduleRequest& request) {
  if (request.half_precision) return DirectReduceScatter(request);
  ScheduleBuilder builder(request);
  AddRingReduceScatter(builder);
  return builder.Take();
}

Schedule RingAllGather(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  AddRingAllGather(builder, builder.Input(request.rank));
  return builder.Take();
}

}  // namespace muster::schedule_internal
