#include "collectives/schedule/barrier.h"

#include "collectives/schedule/builder.h"

namespace muster::schedule_internal {

Schedule DisseminationBarrier(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  const int size = request.size;
  int64_t round = 0;
  for (int distance = 1; distance < size; distance *= 2, ++round) {
    const Slice token = {BufferName::kScratch, round, 1};
    const Slice next_token = {BufferName::kScratch, round + 1, 1};
    builder.AddExchange(distance, Send(Wrap(request.rank + distance, size), token),
                        RecvReduce(Wrap(request.rank - distance, size), token, next_token,
                                   /*completes_sum=*/false));
  }
  builder.SetScratchCount(round + 1);
  return builder.Take();
}

}  // namespace muster::schedule_internal
