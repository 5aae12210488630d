#include "collectives/schedule/broadcast.h"

#include <bit>

#include "collectives/schedule/builder.h"

namespace muster::schedule_internal {

Schedule ChainBroadcast(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  const int size = request.size;
  const bool is_root = request.rank == request.root;
  const Slice whole = is_root ? builder.WholeInput() : builder.WholeOutput();
  if (!is_root) builder.Add(Recv(Wrap(request.rank - 1, size), whole));
  const Rank next = Wrap(request.rank + 1, size);
  if (next != request.root) builder.Add(Send(next, whole));
  builder.AddCopy(whole, builder.WholeOutput());
  return builder.Take();
}

Schedule BinomialBroadcast(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  const auto size = static_cast<unsigned>(request.size);
  const auto relative = static_cast<unsigned>(Wrap(request.rank - request.root, request.size));
  const auto absolute = [&](unsigned number) {
    return static_cast<Rank>((number + static_cast<unsigned>(request.root)) % size);
  };
  const bool is_root = relative == 0;
  const Slice whole = is_root ? builder.WholeInput() : builder.WholeOutput();
  const unsigned lowest_bit = is_root ? std::bit_ceil(size) : relative & -relative;
  if (!is_root) builder.Add(Recv(absolute(relative - lowest_bit), whole));
  for (unsigned bit = lowest_bit >> 1; bit != 0; bit >>= 1) {
    if (relative + bit < size) builder.Add(Send(absolute(relative + bit), whole));
  }
  builder.AddCopy(whole, builder.WholeOutput());
  return builder.Take();
}

}  // namespace muster::schedule_internal
