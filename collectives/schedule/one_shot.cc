#include "collectives/schedule/one_shot.h"

#include <vector>

#include "collectives/schedule/builder.h"

namespace muster::schedule_internal {

Schedule OneShotAllReduce(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  const int size = builder.size();
  const Rank rank = builder.rank();
  const Slice own = builder.WholeInput();
  if (size == 1) {
    builder.AddCopy(own, builder.WholeOutput());
    return builder.Take();
  }
  std::vector<Slice> vectors(size);
  vectors[rank] = own;
  for (int distance = 1; distance < size; ++distance) {
    const Rank from = Wrap(rank - distance, size);
    vectors[from] = builder.TakeScratch(own.count);
    builder.AddExchange(distance, Send(Wrap(rank + distance, size), own),
                        Recv(from, vectors[from]));
  }
  builder.AddWholeSum(vectors);
  return builder.Take();
}

}  // namespace muster::schedule_internal
