#include "collectives/schedule/cost.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace muster {
namespace {

int64_t CeilLog2(int64_t value) { return std::bit_width(static_cast<uint64_t>(value - 1)); }
int64_t FloorLog2(int64_t value) { return std::bit_width(static_cast<uint64_t>(value)) - 1; }

// The chunks of a request as the formulas see them, from one rank.
struct Chunks {
  explicit Chunks(const ScheduleRequest& request)
      : counts(request.collective == Collective::kAllReduce
                   ? EvenCounts(request.count, request.size)
                   : request.counts),
        rank(request.rank),
        size(request.size) {
    for (const int64_t count : counts) {
      total += count;
      filled += count > 0 ? 1 : 0;
    }
  }
  int64_t Own() const { return counts[rank]; }
  int64_t Next() const { return counts[(rank + 1) % size]; }
  int64_t OwnFilled() const { return Own() > 0 ? 1 : 0; }
  int64_t NextFilled() const { return Next() > 0 ? 1 : 0; }

  std::vector<int64_t> counts;
  int64_t rank;
  int64_t size;
  int64_t total = 0;
  int64_t filled = 0;  // chunks that are not empty
};

// Every chunk but the own one leaves once.
ScheduleCost RingReduceScatterCost(const Chunks& c) {
  int64_t largest_passing = 0;  // neither ends nor starts here
  for (int64_t i = 0; i < c.size; ++i) {
    if (i != c.rank && (i + 1) % c.size != c.rank) {
      largest_passing = std::max(largest_passing, c.counts[i]);
    }
  }
  const int64_t slots = std::clamp<int64_t>(c.size - 2, 0, 2);
  return {c.size - 1, c.filled - c.OwnFilled(), c.total - c.Own(), slots * largest_passing};
}

ScheduleCost DirectReduceScatterCost(const Chunks& c) {
  return {std::min<int64_t>(c.size - 1, 1), c.filled - c.OwnFilled(), c.total - c.Own(),
          (c.size - 1) * c.Own()};
}

// Every chunk but the one that the next rank owns leaves once.
ScheduleCost RingAllGatherCost(const Chunks& c) {
  return {c.size - 1, c.filled - c.NextFilled(), c.total - c.Next(), 0};
}

ScheduleCost DirectAllGatherCost(const Chunks& c) {
  return {std::min<int64_t>(c.size - 1, 1), (c.size - 1) * c.OwnFilled(), (c.size - 1) * c.Own(),
          0};
}

ScheduleCost operator+(const ScheduleCost& a, const ScheduleCost& b) {
  return {a.hops + b.hops, a.messages_sent + b.messages_sent, a.elements_sent + b.elements_sent,
          a.scratch_count + b.scratch_count};
}

ScheduleCost BroadcastCost(const ScheduleRequest& request, bool ring) {
  const int64_t relative = (request.rank - request.root + request.size) % request.size;
  int64_t children = 0;
  if (ring) {
    children = relative < request.size - 1 ? 1 : 0;
  } else if (relative == 0) {
    children = CeilLog2(request.size);
  } else {
    // relative + 2^k below size, 2^k below the lowest set bit of relative.
    const int64_t lowest_bit = relative & -relative;
    children = std::min(FloorLog2(lowest_bit), CeilLog2(request.size - relative));
  }
  if (request.count == 0) children = 0;
  return {ring ? request.size - 1 : FloorLog2(request.size), children, children * request.count, 0};
}

}  // namespace

ScheduleCost CostOf(const ScheduleRequest& request) {
  const bool ring = request.algorithm == Algorithm::kRing;
  const bool ring_reduces = ring && !request.half_precision;
  switch (request.collective) {
    case Collective::kAllReduce: {
      const Chunks chunks(request);
      ScheduleCost reduce =
          ring_reduces ? RingReduceScatterCost(chunks) : DirectReduceScatterCost(chunks);
      if (ring_reduces) reduce.scratch_count = 0;  // partial sums pass through the output
      return reduce + (ring ? RingAllGatherCost(chunks) : DirectAllGatherCost(chunks));
    }
    case Collective::kReduceScatter: {
      const Chunks chunks(request);
      return ring_reduces ? RingReduceScatterCost(chunks) : DirectReduceScatterCost(chunks);
    }
    case Collective::kAllGather: {
      const Chunks chunks(request);
      return ring ? RingAllGatherCost(chunks) : DirectAllGatherCost(chunks);
    }
    case Collective::kBroadcast:
      return BroadcastCost(request, ring);
    case Collective::kBarrier: {
      const int64_t rounds = CeilLog2(request.size);
      return {rounds, rounds, rounds, rounds + 1};
    }
  }
  return {};
}

}  // namespace muster
