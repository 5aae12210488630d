#include "collectives/schedule/cost.h"

#include <algorithm>

#include "base/check.h"
#include "collectives/schedule/cost_rows.h"
#include "collectives/schedule/ring.h"

namespace muster {
namespace {

using schedule_internal::CeilLog2;
using schedule_internal::Chunks;
using schedule_internal::FloorLog2;
using schedule_internal::RingReducesDirectly;
using schedule_internal::operator+;

int64_t OneHop(int64_t size) { return size > 1 ? 1 : 0; }

// Every chunk but the own one leaves once.
ScheduleCost RingReduceScatterCost(const Chunks& c, bool keeps_sums_apart) {
  int64_t largest_passing = 0;  // neither ends nor starts here
  for (int64_t i = 0; i < c.size; ++i) {
    if (i != c.rank && (i + 1) % c.size != c.rank) {
      largest_passing = std::max(largest_passing, c.counts[i]);
    }
  }
  const int64_t slots = std::clamp<int64_t>(c.size - 2, 0, 2);
  return {c.size - 1, c.filled - c.FilledAt(c.rank), c.total - c.Own(),
          keeps_sums_apart ? slots * largest_passing : 0,
          c.size == 1 ? 0 : c.total - c.At(c.rank + c.size - 1)};
}

ScheduleCost DirectReduceScatterCost(const Chunks& c) {
  return {OneHop(c.size), c.filled - c.FilledAt(c.rank), c.total - c.Own(), (c.size - 1) * c.Own(),
          (c.size - 1) * c.Own()};
}

// Every chunk but the one that the next rank owns leaves once.
ScheduleCost RingAllGatherCost(const Chunks& c) {
  return {c.size - 1, c.filled - c.FilledAt(c.rank + 1), c.total - c.At(c.rank + 1), 0, 0};
}

ScheduleCost DirectAllGatherCost(const Chunks& c) {
  return {OneHop(c.size), (c.size - 1) * c.FilledAt(c.rank), (c.size - 1) * c.Own(), 0, 0};
}

// Rows of whole vectors: `sends` of them.
ScheduleCost WholeVectors(const ScheduleRequest& request, int64_t hops, int64_t sends) {
  const int64_t count = VectorCount(request);
  return {hops, count > 0 ? sends : 0, sends * count, 0, 0};
}

// The push of a parameter server.
ScheduleCost StarReduceCost(const ScheduleRequest& request) {
  const int64_t others = request.size - 1;
  if (request.rank != request.root) return WholeVectors(request, 1, 1);
  const int64_t count = others * VectorCount(request);
  return {OneHop(request.size), 0, 0, count, count};
}

ScheduleCost AllReduceCost(const ScheduleRequest& request) {
  const Chunks chunks(request);
  const bool is_root = request.rank == request.root;
  switch (request.algorithm) {
    case Algorithm::kRing:
      return (RingReducesDirectly(request) ? DirectReduceScatterCost(chunks)
                                           : RingReduceScatterCost(chunks, false)) +
             RingAllGatherCost(chunks);
    case Algorithm::kDirect:
      return DirectReduceScatterCost(chunks) + DirectAllGatherCost(chunks);
    case Algorithm::kRecursiveDoubling:
      return schedule_internal::RecursiveDoublingCost(request);
    case Algorithm::kHalvingDoubling:
      return schedule_internal::HalvingReduceScatterCost(chunks, false) +
             schedule_internal::DoublingAllGatherCost(chunks);
    case Algorithm::kDoubleTree:
      return schedule_internal::DoubleTreeCost(request);
    case Algorithm::kHierarchical:
      return schedule_internal::HierarchicalCost(request);
    case Algorithm::kStar:
      return StarReduceCost(request) +
             WholeVectors(request, OneHop(request.size), is_root ? request.size - 1 : 0);
    case Algorithm::kOneShot: {
      ScheduleCost cost = WholeVectors(request, OneHop(request.size), request.size - 1);
      cost.scratch_count = cost.elements_sent;
      cost.elements_reduced = cost.elements_sent;
      return cost;
    }
    case Algorithm::kAuto:
    case Algorithm::kWindow:
    case Algorithm::kBruck:
    case Algorithm::kBinomialTree:
    case Algorithm::kScatterAllGather:
      break;
  }
  MUSTER_CHECK(false) << "no row for all-reduce by " << Name(request.algorithm);
  return {};
}

ScheduleCost BroadcastCost(const ScheduleRequest& request) {
  const int64_t size = request.size;
  const int64_t relative = (request.rank - request.root + size) % size;
  if (request.algorithm == Algorithm::kRing) {
    return WholeVectors(request, size - 1, relative < size - 1 ? 1 : 0);
  }
  if (request.algorithm == Algorithm::kDirect) {
    return WholeVectors(request, OneHop(size), relative == 0 ? size - 1 : 0);
  }
  if (request.algorithm == Algorithm::kBinomialTree) {
    return WholeVectors(request, FloorLog2(size), schedule_internal::BinomialChildren(request));
  }
  return schedule_internal::ScatterAllGatherBroadcastCost(request);
}

ScheduleCost ReduceCost(const ScheduleRequest& request) {
  const bool is_root = request.rank == request.root;
  if (request.algorithm == Algorithm::kDirect) return StarReduceCost(request);
  if (request.algorithm == Algorithm::kBinomialTree) {
    const int64_t children = schedule_internal::BinomialChildren(request);
    ScheduleCost cost = WholeVectors(request, FloorLog2(request.size), is_root ? 0 : 1);
    cost.scratch_count = !is_root && children > 0 ? request.count : 0;
    cost.elements_reduced = children * request.count;
    return cost;
  }
  const Chunks chunks(request);
  const ScheduleCost reduce = RingReducesDirectly(request) ? DirectReduceScatterCost(chunks)
                                                           : RingReduceScatterCost(chunks, true);
  if (is_root) return reduce + ScheduleCost{.hops = OneHop(request.size)};
  return reduce + ScheduleCost{1, chunks.FilledAt(request.rank), chunks.Own(), chunks.Own(), 0};
}

ScheduleCost GatherCost(const ScheduleRequest& request) {
  if (request.algorithm == Algorithm::kBinomialTree) {
    return schedule_internal::BinomialGatherCost(request);
  }
  const Chunks chunks(request);
  if (request.rank == request.root) return {.hops = OneHop(request.size)};
  return {1, chunks.FilledAt(request.rank), chunks.Own(), 0, 0};
}

ScheduleCost ScatterCost(const ScheduleRequest& request) {
  if (request.algorithm == Algorithm::kBinomialTree) {
    return schedule_internal::BinomialScatterCost(request);
  }
  const Chunks chunks(request);
  if (request.rank != request.root) return {.hops = 1};
  return {OneHop(request.size), chunks.filled - chunks.FilledAt(request.rank),
          chunks.total - chunks.Own(), 0, 0};
}

ScheduleCost AllToAllCost(const ScheduleRequest& request) {
  if (request.algorithm == Algorithm::kBruck) {
    return schedule_internal::BruckAllToAllCost(request);
  }
  ScheduleCost cost = {.hops = OneHop(request.size)};
  for (Rank to = 0; to < request.size; ++to) {
    if (to == request.rank) continue;
    cost.messages_sent += BlockCount(request, request.rank, to) > 0 ? 1 : 0;
    cost.elements_sent += BlockCount(request, request.rank, to);
  }
  return cost;
}

// Of a chunk that is summed or kept, the part of one rank is here, unless this is a server.
ScheduleCost PushCost(const ScheduleRequest& request) {
  if (request.algorithm == Algorithm::kHierarchical) {
    return schedule_internal::HierarchicalPushCost(request);
  }
  const Chunks c(request);
  const int64_t sums = request.contributors - 1;
  if (request.rank >= request.contributors) {
    return {OneHop(c.size), 0, 0, sums * c.Own(), sums * c.Own()};
  }
  return {OneHop(c.size), c.filled - c.FilledAt(c.rank), c.total - c.Own(), sums * c.Own(),
          sums * c.Own()};
}

ScheduleCost PullCost(const ScheduleRequest& request) {
  if (request.algorithm == Algorithm::kHierarchical) {
    return schedule_internal::HierarchicalPullCost(request);
  }
  const Chunks c(request);
  const int64_t others = request.contributors - (request.rank < request.contributors ? 1 : 0);
  return {OneHop(c.size), others * c.FilledAt(c.rank), others * c.Own(), 0, 0};
}

bool HasEmptyChunk(const ScheduleRequest& request) {
  if (request.collective == Collective::kBarrier) return false;
  if (request.counts.empty()) {
    const bool whole = request.collective == Collective::kBroadcast ||
                       request.collective == Collective::kSendReceive ||
                       request.collective == Collective::kAllToAll;
    return request.count < (whole ? 1 : request.size);
  }
  return *std::min_element(request.counts.begin(), request.counts.end()) == 0;
}

}  // namespace

ScheduleCost CostOf(const ScheduleRequest& request) {
  switch (request.collective) {
    case Collective::kAllReduce:
      return AllReduceCost(request);
    case Collective::kReduceScatter: {
      const Chunks chunks(request);
      if (request.algorithm == Algorithm::kHalvingDoubling) {
        return schedule_internal::HalvingReduceScatterCost(chunks, true);
      }
      const bool ring = request.algorithm == Algorithm::kRing && !RingReducesDirectly(request);
      return ring ? RingReduceScatterCost(chunks, true) : DirectReduceScatterCost(chunks);
    }
    case Collective::kAllGather: {
      const Chunks chunks(request);
      if (request.algorithm == Algorithm::kRing) return RingAllGatherCost(chunks);
      if (request.algorithm == Algorithm::kDirect) return DirectAllGatherCost(chunks);
      return request.algorithm == Algorithm::kBruck
                 ? schedule_internal::BruckAllGatherCost(chunks)
                 : schedule_internal::DoublingAllGatherCost(chunks);
    }
    case Collective::kBroadcast:
      return BroadcastCost(request);
    case Collective::kBarrier: {
      const int64_t rounds = CeilLog2(request.size);
      return {rounds, rounds, rounds, rounds + 1, rounds};
    }
    case Collective::kReduce:
      return ReduceCost(request);
    case Collective::kGather:
      return GatherCost(request);
    case Collective::kScatter:
      return ScatterCost(request);
    case Collective::kAllToAll:
      return AllToAllCost(request);
    case Collective::kSendReceive:
      return WholeVectors(request, 1, request.rank == request.root ? 1 : 0);
    case Collective::kPush:
      return PushCost(request);
    case Collective::kPull:
      return PullCost(request);
  }
  return {};
}

bool HopsAreExact(const ScheduleRequest& request) {
  if (HasEmptyChunk(request)) return false;
  switch (request.algorithm) {
    case Algorithm::kRing:
    case Algorithm::kDirect:
    case Algorithm::kRecursiveDoubling:
    case Algorithm::kDoubleTree:
    case Algorithm::kStar:
    case Algorithm::kBinomialTree:
    case Algorithm::kOneShot:
      return true;
    // Not every round passes on what the one before brought, unless the size is a power of two.
    case Algorithm::kHalvingDoubling:
    case Algorithm::kBruck:
      return (request.size & (request.size - 1)) == 0;
    case Algorithm::kHierarchical:
    case Algorithm::kScatterAllGather:
    case Algorithm::kAuto:
    case Algorithm::kWindow:
      return false;
  }
  return false;
}

ScheduleCost MeasuredCost(const Schedule& schedule) {
  ScheduleCost cost = {.scratch_count = schedule.scratch_count};
  for (const ScheduleStep& step : schedule.steps) {
    switch (step.kind) {
      case StepKind::kSend:
        ++cost.messages_sent;
        cost.elements_sent += step.source.count;
        break;
      case StepKind::kRecvReduce:
        cost.elements_reduced += step.target.count;
        break;
      case StepKind::kReduce:
        cost.elements_reduced +=
            (static_cast<int64_t>(step.sources.size()) - 1) * step.target.count;
        break;
      case StepKind::kRecv:
      case StepKind::kCopy:
        break;
    }
  }
  return cost;
}

}  // namespace muster
