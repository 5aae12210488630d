#include "collectives/schedule/direct.h"

namespace muster::schedule_internal {
namespace {

void AddDirectAllGather(ScheduleBuilder& builder, Slice own) {
  const int size = builder.size();
  const Rank rank = builder.rank();
  builder.AddCopy(own, builder.Output(rank));
  for (int distance = 1; distance < size; ++distance) {
    const Rank from = Wrap(rank - distance, size);
    builder.AddExchange(distance, Send(Wrap(rank + distance, size), own),
                        Recv(from, builder.Output(from)));
  }
}

}  // namespace

void AddDirectReduceScatter(ScheduleBuilder& builder, Slice result) {
  const int size = builder.size();
  const Rank rank = builder.rank();
  if (size == 1) return builder.AddCopy(builder.Input(0), result);
  const int64_t count = builder.ChunkCount(rank);
  ScheduleStep sum = {.kind = StepKind::kReduce, .target = result, .completes_sum = true};
  // Contributions arrive in the order of the sum, from rank + 1 on.
  for (int ahead = 1; ahead < size; ++ahead) {
    const Rank to = Wrap(rank - ahead, size);
    const Rank from = Wrap(rank + ahead, size);
    const Slice slot = builder.TakeScratch(count);
    builder.AddExchange(size - ahead, Send(to, builder.Input(to)), Recv(from, slot));
    sum.sources.push_back(slot);
  }
  sum.sources.push_back(builder.Input(rank));
  builder.Add(std::move(sum));
}

Schedule DirectAllReduce(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  const Slice own = builder.Output(request.rank);
  AddDirectReduceScatter(builder, own);
  AddDirectAllGather(builder, own);
  return builder.Take();
}

Schedule DirectReduceScatter(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  AddDirectReduceScatter(builder, builder.Output(request.rank));
  return builder.Take();
}

Schedule DirectAllGather(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  AddDirectAllGather(builder, builder.Input(request.rank));
  return builder.Take();
}

}  // namespace muster::schedule_internal
