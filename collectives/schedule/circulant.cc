#include "collectives/schedule/circulant.h"

#include <algorithm>

#include "base/check.h"

namespace muster::schedule_internal {
namespace {

Place ChunksOf(const ScheduleBuilder& builder, Slice whole) {
  return [&builder, whole](const Run& run) { return builder.ChunksIn(whole, run); };
}

Schedule GatherSchedule(const ScheduleRequest& request, const std::vector<GatherRound>& rounds) {
  ScheduleBuilder builder(request);
  AddCirculantAllGather(builder, builder.Everyone(), rounds, builder.Input(request.rank),
                        ChunksOf(builder, builder.WholeOutput()));
  return builder.Take();
}

}  // namespace

std::vector<GatherRound> DoublingRounds(int size) {
  std::vector<GatherRound> rounds;
  for (int holds = size; holds > 1; holds = (holds + 1) / 2) {
    rounds.push_back({.have = (holds + 1) / 2, .take = holds / 2});
  }
  std::reverse(rounds.begin(), rounds.end());
  return rounds;
}

std::vector<GatherRound> BruckRounds(int size) {
  std::vector<GatherRound> rounds;
  for (int have = 1; have < size; have *= 2) {
    rounds.push_back({.have = have, .take = std::min(have, size - have)});
  }
  return rounds;
}

void AddHalvingReduceScatter(ScheduleBuilder& builder, const Team& team, const Place& raw,
                             const Place& partial, const Place& result) {
  const int size = team.size();
  const int own = team.index;
  if (size == 1) return builder.AddCopy(raw({0, 1}), result({0, 1}));
  if (size % 2 == 1) {
    // The middle block is neither handed over nor added to in the first round, and goes with sums
    // in the second.
    const int middle = Wrap(own - size / 2, size);
    builder.AddCopy(raw({middle, middle + 1}), partial({middle, middle + 1}));
  }
  for (int holds = size; holds > 1; holds = (holds + 1) / 2) {
    const int keeps = (holds + 1) / 2;
    const int gives = holds - keeps;
    const Place& before = holds == size ? raw : partial;
    const bool last = holds == 2;
    const Place& after = last ? result : partial;
    std::vector<ScheduleStep> sends, receives;
    for (const Run& run : RunsOf(Wrap(own - holds + 1, size), gives, size)) {
      sends.push_back(Send(team.At(own - keeps), before(run)));
    }
    for (const Run& run : RunsOf(Wrap(own - gives + 1, size), gives, size)) {
      receives.push_back(RecvReduce(team.At(own + keeps), before(run), after(run), last));
    }
    builder.AddShift(own, size - keeps, std::move(sends), std::move(receives));
  }
}

void AddCirculantAllGather(ScheduleBuilder& builder, const Team& team,
                           const std::vector<GatherRound>& rounds, Slice own, const Place& place) {
  const int size = team.size();
  builder.AddCopy(own, place({team.index, team.index + 1}));
  for (const auto& [have, take] : rounds) {
    std::vector<ScheduleStep> sends, receives;
    for (const Run& run : RunsOf(team.index, take, size)) {
      sends.push_back(Send(team.At(team.index - have), have == 1 ? own : place(run)));
    }
    for (const Run& run : RunsOf(team.index + have, take, size)) {
      receives.push_back(Recv(team.At(team.index + have), place(run)));
    }
    builder.AddShift(team.index, size - have, std::move(sends), std::move(receives));
  }
}

Schedule HalvingDoublingAllReduce(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  const Place sums = ChunksOf(builder, builder.WholeOutput());
  AddHalvingReduceScatter(builder, builder.Everyone(), ChunksOf(builder, builder.WholeInput()),
                          sums, sums);
  AddCirculantAllGather(builder, builder.Everyone(), DoublingRounds(request.size),
                        builder.Output(request.rank), sums);
  return builder.Take();
}

Schedule HalvingDoublingReduceScatter(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  // Scratch holds the blocks up to the own one, in that order.
  std::vector<int64_t> offset(request.size, -1);
  const Slice scratch = builder.TakeScratch(0);
  if (request.size > 2) {
    for (int behind = (request.size + 1) / 2; behind-- > 0;) {
      const Rank block = Wrap(request.rank - behind, request.size);
      offset[block] = builder.TakeScratch(builder.ChunkCount(block)).offset;
    }
  }
  const Place partial = [&](const Run& run) {
    MUSTER_CHECK_GE(offset[run.first], 0) << "block " << run.first << " has no scratch";
    return Slice{scratch.buffer, offset[run.first],
                 builder.ChunkOffset(run.last) - builder.ChunkOffset(run.first)};
  };
  const Place result = [&](const Run&) { return builder.Output(request.rank); };
  AddHalvingReduceScatter(builder, builder.Everyone(), ChunksOf(builder, builder.WholeInput()),
                          partial, result);
  return builder.Take();
}

Schedule HalvingDoublingAllGather(const ScheduleRequest& request) {
  return GatherSchedule(request, DoublingRounds(request.size));
}

Schedule BruckAllGather(const ScheduleRequest& request) {
  return GatherSchedule(request, BruckRounds(request.size));
}

}  // namespace muster::schedule_internal
