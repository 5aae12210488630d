#include "collectives/schedule/barrier.h"

#include "collectives/schedule/builder.h"

namespace muster::schedule_internal {

Schedule DisseminationBarrier(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  const int size = request.size;
  Slice token = builder.TakeScratch(1);
  for (int distance = 1; distance < size; distance *= 2) {
    const Slice next_token = builder.TakeScratch(1);
    builder.AddExchange(distance, Send(Wrap(request.rank + distance, size), token),
                        RecvReduce(Wrap(request.rank - distance, size), token, next_token,
                                   /*completes_sum=*/false));
    token = next_token;
  }
  return builder.Take();
}

}  // namespace muster::schedule_internal
