#include "collectives/schedule/star.h"

namespace muster::schedule_internal {

void AddStarReduce(ScheduleBuilder& builder) {
  const Rank root = builder.request().root;
  const int size = builder.size();
  if (builder.rank() != root) return builder.Add(Send(root, builder.WholeInput()));
  if (size == 1) return builder.AddCopy(builder.WholeInput(), builder.WholeOutput());
  std::vector<Slice> contributions(size);
  contributions[root] = builder.WholeInput();
  for (int ahead = 1; ahead < size; ++ahead) {
    const Rank from = Wrap(root + ahead, size);
    contributions[from] = builder.TakeScratch(builder.WholeInput().count);
    builder.Add(Recv(from, contributions[from]));
  }
  builder.AddWholeSum(contributions);
}

Schedule StarAllReduce(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  AddStarReduce(builder);
  if (request.rank != request.root) {
    builder.Add(Recv(request.root, builder.WholeOutput()));
  } else {
    for (int ahead = 1; ahead < request.size; ++ahead) {
      builder.Add(Send(Wrap(request.root + ahead, request.size), builder.WholeOutput()));
    }
  }
  return builder.Take();
}

}  // namespace muster::schedule_internal
