#include "collectives/schedule/broadcast.h"

#include "collectives/schedule/binomial_tree.h"
#include "collectives/schedule/builder.h"
#include "collectives/schedule/ring.h"

namespace muster::schedule_internal {
namespace {

// Where this rank finds the vector: the root has it, the others get it.
Slice WholeOf(const ScheduleBuilder& builder) {
  return builder.rank() == builder.request().root ? builder.WholeInput() : builder.WholeOutput();
}

}  // namespace

Schedule ChainBroadcast(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  const int size = request.size;
  const Slice whole = WholeOf(builder);
  if (request.rank != request.root) builder.Add(Recv(Wrap(request.rank - 1, size), whole));
  const Rank next = Wrap(request.rank + 1, size);
  if (next != request.root) builder.Add(Send(next, whole));
  builder.AddCopy(whole, builder.WholeOutput());
  return builder.Take();
}

Schedule DirectBroadcast(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  const Slice whole = WholeOf(builder);
  if (request.rank != request.root) {
    builder.Add(Recv(request.root, whole));
  } else {
    for (int ahead = 1; ahead < request.size; ++ahead) {
      builder.Add(Send(Wrap(request.root + ahead, request.size), whole));
    }
  }
  builder.AddCopy(whole, builder.WholeOutput());
  return builder.Take();
}

Schedule BinomialBroadcast(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  const Team team = builder.Everyone(request.root);
  const BinomialPlace place = BinomialPlaceOf(team.index, request.size);
  const Slice whole = WholeOf(builder);
  if (place.parent >= 0) builder.Add(Recv(team.At(place.parent), whole));
  for (const int child : place.children) builder.Add(Send(team.At(child), whole));
  builder.AddCopy(whole, builder.WholeOutput());
  return builder.Take();
}

Schedule ScatterAllGatherBroadcast(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  // Chunks belong to numbers, not to ranks, so that no subtree wraps around the vector's end.
  const Team team = builder.Everyone(request.root);
  const BinomialPlace place = BinomialPlaceOf(team.index, request.size);
  const Slice whole = WholeOf(builder);
  std::vector<int> has;  // after the scatter: the chunks of the subtree
  for (int number = 0; number < request.size; ++number) {
    has.push_back(BinomialPlaceOf(number, request.size).span);
  }
  const auto subtree = [&](int number) {
    return builder.ChunksIn(whole, {number, number + has[number]});
  };
  if (place.parent >= 0) builder.Add(Recv(team.At(place.parent), subtree(team.index)));
  for (const int child : place.children) builder.Add(Send(team.At(child), subtree(child)));
  AddRingAllGather(builder, team, has, builder.ChunksIn(whole, {team.index, team.index + 1}),
                   [&](const Run& run) { return builder.ChunksIn(whole, run); });
  builder.AddCopy(whole, builder.WholeOutput());
  return builder.Take();
}

}  // namespace muster::schedule_internal
