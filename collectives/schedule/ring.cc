#include "collectives/schedule/ring.h"

#include <algorithm>

#include "collectives/schedule/direct.h"

namespace muster::schedule_internal {
namespace {

// Where the partial sums that pass through a rank wait for their next hop. All-reduce keeps them
// where the result will lie. The others may not touch other chunks, so two scratch slots take
// turns: one is being received while the other is being sent.
class PartialSums {
 public:
  explicit PartialSums(ScheduleBuilder& builder) : builder_(builder) {
    if (builder.request().collective == Collective::kAllReduce) return;
    // The chunks of rank and rank - 1 do not pass through: one ends here, the other starts here.
    int64_t largest = 0;
    for (Rank chunk = 0; chunk < builder.size(); ++chunk) {
      if (chunk == builder.rank() || chunk == Wrap(builder.rank() - 1, builder.size())) continue;
      largest = std::max(largest, builder.ChunkCount(chunk));
    }
    for (int slot = 0; slot < std::min(2, builder.size() - 2); ++slot) {
      slots_.push_back(builder.TakeScratch(largest));
    }
  }

  // The place of the partial sum of `chunk` received in round `round`.
  Slice At(Rank chunk, int round) const {
    if (builder_.request().collective == Collective::kAllReduce) return builder_.Output(chunk);
    return Part(slots_[round % 2], 0, builder_.ChunkCount(chunk));
  }

 private:
  const ScheduleBuilder& builder_;
  std::vector<Slice> slots_;
};

void AddRingReduceScatter(ScheduleBuilder& builder, Slice result) {
  if (RingReducesDirectly(builder.request())) return AddDirectReduceScatter(builder, result);
  const int size = builder.size();
  const Rank rank = builder.rank();
  if (size == 1) return builder.AddCopy(builder.Input(0), result);
  const PartialSums partial(builder);
  for (int round = 0; round < size - 1; ++round) {
    const Rank outgoing = Wrap(rank - 1 - round, size);
    const Rank incoming = Wrap(rank - 2 - round, size);
    const bool last = round == size - 2;
    builder.AddExchange(1,
                        Send(Wrap(rank + 1, size), round == 0 ? builder.Input(outgoing)
                                                              : partial.At(outgoing, round - 1)),
                        RecvReduce(Wrap(rank - 1, size), builder.Input(incoming),
                                   last ? result : partial.At(incoming, round), last));
  }
}

void AddRingAllGatherOfChunks(ScheduleBuilder& builder, Slice own) {
  AddRingAllGather(
      builder, builder.Everyone(), std::vector<int>(builder.size(), 1), own,
      [&builder](const Run& run) { return builder.ChunksIn(builder.WholeOutput(), run); });
}

}  // namespace

void AddRingAllGather(ScheduleBuilder& builder, const Team& team, const std::vector<int>& has,
                      Slice own, const Place& place) {
  const int size = team.size();
  const auto needs = [&](int member, int block) {
    return Wrap(block - member, size) >= has[member];
  };
  builder.AddCopy(own, place({team.index, team.index + 1}));
  for (int round = 0; round < size - 1; ++round) {
    const int outgoing = Wrap(team.index - round, size);
    const int incoming = Wrap(team.index - 1 - round, size);
    std::vector<ScheduleStep> sends, receives;
    if (needs(Wrap(team.index + 1, size), outgoing)) {
      sends.push_back(
          Send(team.At(team.index + 1), round == 0 ? own : place({outgoing, outgoing + 1})));
    }
    if (needs(team.index, incoming)) {
      receives.push_back(Recv(team.At(team.index - 1), place({incoming, incoming + 1})));
    }
    builder.AddShift(team.index, 1, std::move(sends), std::move(receives));
  }
}

Schedule RingAllReduce(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  AddRingReduceScatter(builder, builder.Output(request.rank));
  AddRingAllGatherOfChunks(builder, builder.Output(request.rank));
  return builder.Take();
}

Schedule RingReduceScatter(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  AddRingReduceScatter(builder, builder.Output(request.rank));
  return builder.Take();
}

Schedule RingAllGather(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  AddRingAllGatherOfChunks(builder, builder.Input(request.rank));
  return builder.Take();
}

Schedule RingReduce(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  if (request.rank == request.root) {
    AddRingReduceScatter(builder, builder.Output(request.rank));
    for (int ahead = 1; ahead < request.size; ++ahead) {
      const Rank from = Wrap(request.rank + ahead, request.size);
      builder.Add(Recv(from, builder.Output(from)));
    }
  } else {
    const Slice own = builder.TakeScratch(builder.ChunkCount(request.rank));
    AddRingReduceScatter(builder, own);
    builder.Add(Send(request.root, own));
  }
  return builder.Take();
}

}  // namespace muster::schedule_internal
