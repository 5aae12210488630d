#include "collectives/schedule/all_to_all.h"

#include <vector>

#include "collectives/schedule/builder.h"

namespace muster::schedule_internal {
namespace {

// The blocks of one rank, in its input (to each rank) and its output (from each rank).
class Blocks {
 public:
  explicit Blocks(const ScheduleRequest& request) {
    int64_t input = 0;
    int64_t output = 0;
    for (Rank peer = 0; peer < request.size; ++peer) {
      const int64_t sent = BlockCount(request, request.rank, peer);
      const int64_t received = BlockCount(request, peer, request.rank);
      to_.push_back({BufferName::kInput, input, sent});
      from_.push_back({BufferName::kOutput, output, received});
      input += sent;
      output += received;
    }
  }
  const Slice& To(Rank peer) const { return to_[peer]; }
  const Slice& From(Rank peer) const { return from_[peer]; }

 private:
  std::vector<Slice> to_;
  std::vector<Slice> from_;
};

}  // namespace

Schedule DirectAllToAll(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  const Blocks blocks(request);
  builder.AddCopy(blocks.To(request.rank), blocks.From(request.rank));
  for (int distance = 1; distance < request.size; ++distance) {
    const Rank to = Wrap(request.rank + distance, request.size);
    const Rank from = Wrap(request.rank - distance, request.size);
    builder.AddExchange(distance, Send(to, blocks.To(to)), Recv(from, blocks.From(from)));
  }
  return builder.Take();
}

Schedule BruckAllToAll(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  const int size = request.size;
  const Rank rank = request.rank;
  const Blocks blocks(request);
  // Before the round of bit k, the block here that goes `distance` in all has gone the part of it
  // below that bit, so it comes from that many ranks behind.
  const auto count_before = [&](Rank here, int distance, int bit) {
    const Rank from = Wrap(here - (distance & (bit - 1)), size);
    return BlockCount(request, from, Wrap(from + distance, size));
  };
  std::vector<Slice> here(size);  // by distance
  for (int distance = 0; distance < size; ++distance) {
    here[distance] = blocks.To(Wrap(rank + distance, size));
  }
  for (int bit = 1; bit < size; bit *= 2) {
    const Rank behind = Wrap(rank - bit, size);
    int64_t outgoing = 0;
    int64_t incoming = 0;
    for (int distance = bit; distance < size; ++distance) {
      if ((distance & bit) == 0) continue;
      outgoing += count_before(rank, distance, bit);
      incoming += count_before(behind, distance, bit);
    }
    const Slice packed = builder.TakeScratch(outgoing);
    const Slice arrived = builder.TakeScratch(incoming);
    int64_t packed_at = 0;
    int64_t arrived_at = 0;
    for (int distance = bit; distance < size; ++distance) {
      if ((distance & bit) == 0) continue;
      builder.AddCopy(here[distance], Part(packed, packed_at, here[distance].count));
      packed_at += here[distance].count;
      const int64_t count = count_before(behind, distance, bit);
      here[distance] = Part(arrived, arrived_at, count);
      arrived_at += count;
    }
    builder.AddExchange(bit, Send(Wrap(rank + bit, size), packed), Recv(behind, arrived));
  }
  for (int distance = 0; distance < size; ++distance) {
    builder.AddCopy(here[distance], blocks.From(Wrap(rank - distance, size)));
  }
  return builder.Take();
}

Schedule DirectSendReceive(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  if (request.rank == request.root) builder.Add(Send(request.destination, builder.WholeInput()));
  if (request.rank == request.destination) {
    builder.Add(Recv(request.root, builder.WholeOutput()));
  }
  return builder.Take();
}

}  // namespace muster::schedule_internal
