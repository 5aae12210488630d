#include "state/move_chunks.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace muster {
namespace {

struct Placed {
  // The order of all messages.
  std::tuple<int64_t, Rank, Rank> place;
  MoveChunk chunk;
};

// Fills chunks of one pair.
class PairChunks {
 public:
  PairChunks(Rank from, Rank to, bool is_sent, int participants)
      : from_(from),
        distance_((to - from + participants) % participants),
        peer_(is_sent ? to : from),
        is_sent_(is_sent) {}

  void Add(Range range, int64_t chunk_elements, std::vector<Placed>& chunks) {
    while (range.count > 0) {
      if (filling_.element_count == chunk_elements) Flush(chunks);
      const int64_t count = std::min(range.count, chunk_elements - filling_.element_count);
      filling_.ranges.push_back({range.offset, count});
      filling_.element_count += count;
      range = {range.offset + count, range.count - count};
    }
  }
  void Flush(std::vector<Placed>& chunks) {
    if (filling_.element_count == 0) return;
    filling_.peer = peer_;
    filling_.is_sent = is_sent_;
    chunks.push_back({{number_++, distance_, from_}, std::exchange(filling_, {})});
  }

 private:
  const Rank from_;
  const Rank distance_;
  const Rank peer_;
  const bool is_sent_;
  int64_t number_ = 0;
  MoveChunk filling_;
};

}  // namespace

std::vector<MoveChunk> ChunksOf(const ReshardPlan& plan, Rank self, int64_t chunk_elements) {
  MUSTER_CHECK_GE(chunk_elements, 1);
  std::vector<Placed> placed;
  for (size_t i = 0; i < plan.transfers.size();) {
    const auto [from, to, unused] = plan.transfers[i];
    PairChunks pair(from, to, from == self, plan.participants);
    for (;
         i < plan.transfers.size() && plan.transfers[i].from == from && plan.transfers[i].to == to;
         ++i) {
      if (from == self || to == self) pair.Add(plan.transfers[i].range, chunk_elements, placed);
    }
    pair.Flush(placed);
  }
  std::sort(placed.begin(), placed.end(),
            [](const Placed& a, const Placed& b) { return a.place < b.place; });
  std::vector<MoveChunk> chunks;
  for (Placed& one : placed) chunks.push_back(std::move(one.chunk));
  return chunks;
}

}  // namespace muster
