#include "collectives/schedule/cost_rows.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "collectives/schedule/hierarchical.h"
#include "collectives/schedule/hierarchical_push_pull.h"

namespace muster::schedule_internal {
namespace {

int64_t NumberOf(const ScheduleRequest& request) {
  return (request.rank - request.root + request.size) % request.size;
}

// Numbers in the subtree of the binomial tree.
int64_t BinomialSpan(int64_t number, int64_t size) {
  return number == 0 ? size : std::min(number & -number, size - number);
}

int64_t BinomialChildrenOf(int64_t number, int64_t size) {
  if (number == 0) return CeilLog2(size);
  // number + 2^k below size, 2^k below the lowest set bit.
  return std::min(FloorLog2(number & -number), CeilLog2(size - number));
}

// Of a lane between hosts; c.rank is this rank's host.
ScheduleCost LaneCost(const Chunks& c) {
  if (c.size > kMostHostsInRing) {
    return HalvingReduceScatterCost(c, false) + DoublingAllGatherCost(c);
  }
  // All blocks but the own one go as sums, all but that of the host before as results.
  const int64_t before = c.rank + c.size - 1;
  return {.hops = 2 * (c.size - 1),
          .messages_sent = 2 * c.filled - c.FilledAt(c.rank) - c.FilledAt(before),
          .elements_sent = 2 * c.total - c.Own() - c.At(before),
          .elements_reduced = c.total - c.At(c.rank + 1)};
}

// What a push and a pull over hosts have in common, from the view of one rank.
struct CarryCost {
  explicit CarryCost(const ScheduleRequest& request) : chunks(request), crews(HostCrews(request)) {
    bool any_shared = false;
    for (const HostCrew& crew : crews) {
      any_shared = any_shared || crew.workers.size() > 1;
      int64_t of_crew = 0;
      for (size_t local = 0; local < crew.workers.size(); ++local) {
        const Rank worker = crew.workers[local];
        of_crew += chunks.FilledAt(worker);
        of_crew += static_cast<int64_t>(crew.carried[local].size());
        for (const CarriedPiece& piece : crew.carried[local]) {
          if (piece.owner == request.rank) ++pieces_of_own;
          if (worker == request.rank) carried += piece.count;
        }
        if (worker != request.rank) continue;
        peers = static_cast<int64_t>(crew.workers.size()) - 1;
        pieces = static_cast<int64_t>(crew.carried[local].size());
      }
      if (std::binary_search(crew.workers.begin(), crew.workers.end(), request.rank)) {
        parts_of_peers = of_crew - pieces - chunks.FilledAt(request.rank);
      }
    }
    other_hosts =
        static_cast<int64_t>(crews.size()) - (request.rank < request.contributors ? 1 : 0);
    hops = (any_shared ? 1 : 0) + (chunks.size > 1 ? 1 : 0);
  }

  const Chunks chunks;
  const std::vector<HostCrew> crews;
  int64_t peers = 0;           // other workers of the host
  int64_t carried = 0;         // elements
  int64_t pieces = 0;          // they lie in
  int64_t parts_of_peers = 0;  // pieces and chunks of the other workers of the host
  int64_t pieces_of_own = 0;   // in which the own chunk is carried
  int64_t other_hosts = 0;     // that have workers
  int64_t hops = 0;
};

}  // namespace

int64_t CeilLog2(int64_t value) { return std::bit_width(static_cast<uint64_t>(value - 1)); }
int64_t FloorLog2(int64_t value) { return std::bit_width(static_cast<uint64_t>(value)) - 1; }

ScheduleCost operator+(const ScheduleCost& a, const ScheduleCost& b) {
  return {a.hops + b.hops, a.messages_sent + b.messages_sent, a.elements_sent + b.elements_sent,
          a.scratch_count + b.scratch_count, a.elements_reduced + b.elements_reduced};
}

Chunks::Chunks(const ScheduleRequest& request) : Chunks(ChunkCounts(request), request.rank) {}

Chunks::Chunks(std::vector<int64_t> counts_in, int64_t rank_in)
    : counts(std::move(counts_in)), rank(rank_in), size(static_cast<int64_t>(counts.size())) {
  for (const int64_t count : counts) {
    total += count;
    filled += count > 0 ? 1 : 0;
  }
}

int64_t Chunks::Sum(int64_t first, int64_t count) const {
  int64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += At(first + i);
  return sum;
}

int64_t Chunks::Messages(int64_t first, int64_t count) const {
  first %= size;
  const int64_t before_end = std::min(count, size - first);
  return (Sum(first, before_end) > 0 ? 1 : 0) + (Sum(0, count - before_end) > 0 ? 1 : 0);
}

ScheduleCost HalvingReduceScatterCost(const Chunks& c, bool keeps_sums_apart) {
  ScheduleCost cost = {.hops = CeilLog2(c.size)};
  for (int64_t holds = c.size; holds > 1; holds = (holds + 1) / 2) {
    const int64_t gives = holds / 2;
    const int64_t first_given = c.rank + c.size - holds + 1;
    cost.messages_sent += c.Messages(first_given, gives);
    cost.elements_sent += c.Sum(first_given, gives);
    cost.elements_reduced += c.Sum(c.rank + c.size - gives + 1, gives);
  }
  if (keeps_sums_apart && c.size > 2) {
    const int64_t kept = (c.size + 1) / 2;
    cost.scratch_count = c.Sum(c.rank + c.size - kept + 1, kept);
  }
  return cost;
}

ScheduleCost DoublingAllGatherCost(const Chunks& c) {
  ScheduleCost cost = {.hops = CeilLog2(c.size)};
  for (int64_t holds = c.size; holds > 1; holds = (holds + 1) / 2) {
    cost.messages_sent += c.Messages(c.rank, holds / 2);
    cost.elements_sent += c.Sum(c.rank, holds / 2);
  }
  return cost;
}

ScheduleCost BruckAllGatherCost(const Chunks& c) {
  ScheduleCost cost = {.hops = CeilLog2(c.size)};
  for (int64_t have = 1; have < c.size; have *= 2) {
    const int64_t take = std::min(have, c.size - have);
    cost.messages_sent += c.Messages(c.rank, take);
    cost.elements_sent += c.Sum(c.rank, take);
  }
  return cost;
}

ScheduleCost RecursiveDoublingCost(const ScheduleRequest& request) {
  const int64_t rounds = FloorLog2(request.size);
  const int64_t folded = request.size - (int64_t{1} << rounds);
  const int64_t n = VectorCount(request);
  const int64_t any = n > 0 ? 1 : 0;
  // What is folded in comes out folded again after all rounds only if the two are complements.
  const bool folds_twice = 2 * folded > request.size - folded;
  const int64_t hops = rounds + (folded == 0 ? 0 : folds_twice ? 2 : 1);
  if (request.rank < 2 * folded && request.rank % 2 == 0) return {hops, any, n, 0, 0};
  const int64_t fold = request.rank < 2 * folded ? 1 : 0;
  const int64_t sums = rounds + fold;
  // One sum alone is made where it belongs, unless it would overwrite what is being sent.
  const bool alternates = sums > 1 || (sums == 1 && fold == 0 && request.in_place);
  return {hops, any * sums, n * sums, alternates ? n : 0, n * sums};
}

ScheduleCost DoubleTreeCost(const ScheduleRequest& request) {
  const int64_t size = request.size;
  ScheduleCost cost = {.hops = 2 * CeilLog2(size)};
  if (size == 1) return cost;
  for (int tree = 0; tree < 2; ++tree) {
    const int64_t half = ChunkOf(VectorCount(request), 2, tree).count;
    int64_t number = request.rank;
    if (tree == 1) number = size % 2 == 0 ? size - 1 - number : (number + size - 1) % size;
    // Even numbers have a child before them, and one behind if there is anybody.
    int64_t children = 0;
    if (number == 0) children = 1;
    if (number > 0 && number % 2 == 0) children = number + 1 < size ? 2 : 1;
    const int64_t sends = children + (number == 0 ? 0 : 1);
    cost.messages_sent += half > 0 ? sends : 0;
    cost.elements_sent += sends * half;
    cost.elements_reduced += children * half;
  }
  return cost;
}

ScheduleCost HierarchicalCost(const ScheduleRequest& request) {
  const std::vector<std::vector<Rank>> hosts = RanksByHost(request.hosts);
  int64_t my_host = 0;
  int64_t local = 0;
  bool any_shared = false;
  for (size_t host = 0; host < hosts.size(); ++host) {
    any_shared = any_shared || hosts[host].size() > 1;
    const auto found = std::find(hosts[host].begin(), hosts[host].end(), request.rank);
    if (found == hosts[host].end()) continue;
    my_host = static_cast<int64_t>(host);
    local = found - hosts[host].begin();
  }
  const int64_t vector = VectorCount(request);
  // Reduce-scatter and all-gather inside the host.
  const Chunks mine(EvenCounts(vector, static_cast<int>(hosts[my_host].size())), local);
  ScheduleCost cost = {.hops = any_shared ? 2 : 0,
                       .elements_sent = mine.total - mine.Own() + (mine.size - 1) * mine.Own(),
                       .elements_reduced = (mine.size - 1) * mine.Own()};
  const auto count = static_cast<int64_t>(hosts.size());
  cost.hops += count > kMostHostsInRing ? 2 * CeilLog2(count) : 2 * (count - 1);
  for (const HostLane& lane : HostLanes(vector, hosts)) {
    const Chunks chunks(EvenCounts(lane.count, static_cast<int>(count)), my_host);
    // A lane's blocks go to its owner, from the one behind this host's on, ...
    if (lane.owners[my_host] != local) {
      cost.messages_sent += chunks.Messages(my_host + 1, count);
      continue;
    }
    // ... who hands them to the others, from this host's on.
    cost.messages_sent += (mine.size - 1) * chunks.Messages(my_host, count);
    if (count == 1) continue;
    ScheduleCost between = LaneCost(chunks);
    between.hops = 0;  // Lanes run at the same time.
    cost = cost + between;
  }
  return cost;
}

ScheduleCost HierarchicalPushCost(const ScheduleRequest& request) {
  const CarryCost c(request);
  const int64_t own = c.chunks.Own();
  const auto hosts = static_cast<int64_t>(c.crews.size());
  ScheduleCost cost = {
      .hops = c.hops, .scratch_count = (hosts - 1) * own, .elements_reduced = (hosts - 1) * own};
  if (request.rank >= request.contributors) return cost;
  // Each element but the own ones leaves once: to whoever of the host adds it up, or to its owner.
  cost.messages_sent = c.parts_of_peers + c.pieces;
  cost.elements_sent = c.chunks.total - own;
  cost.scratch_count += c.peers > 0 ? c.carried : 0;
  cost.elements_reduced += c.peers * (c.carried + own);
  return cost;
}

ScheduleCost HierarchicalPullCost(const ScheduleRequest& request) {
  const CarryCost c(request);
  const int64_t own = c.chunks.Own();
  return {.hops = c.hops,
          .messages_sent = c.pieces_of_own + c.peers * (c.pieces + c.chunks.FilledAt(request.rank)),
          .elements_sent = c.other_hosts * own + c.peers * (c.carried + own)};
}

int64_t BinomialChildren(const ScheduleRequest& request) {
  return BinomialChildrenOf(NumberOf(request), request.size);
}

ScheduleCost ScatterAllGatherBroadcastCost(const ScheduleRequest& request) {
  const int64_t number = NumberOf(request);
  const Chunks c(EvenCounts(request.count, request.size), number);
  // The chunks of the subtree but the own one go down, in a message to each child.
  const int64_t below = c.Sum(number, BinomialSpan(number, c.size)) - c.Own();
  int64_t children = 0;
  for (int64_t k = 0; k < BinomialChildrenOf(number, c.size); ++k) {
    const int64_t child = number + (int64_t{1} << k);
    children += c.Sum(child, BinomialSpan(child, c.size)) > 0 ? 1 : 0;
  }
  ScheduleCost cost = {.hops = c.size == 1 ? 0 : CeilLog2(c.size) + c.size - 1,
                       .messages_sent = children,
                       .elements_sent = below};
  // Then the chunks go around, each to those that don't have it; the root has all.
  const int64_t next = (number + 1) % c.size;
  const int64_t next_has = BinomialSpan(next, c.size);
  cost.messages_sent += c.filled;
  for (int64_t i = 0; i < next_has; ++i) cost.messages_sent -= c.FilledAt(next + i);
  cost.elements_sent += c.total - c.Sum(next, next_has);
  return cost;
}

ScheduleCost BinomialGatherCost(const ScheduleRequest& request) {
  const Chunks c(request);
  const int64_t number = NumberOf(request);
  ScheduleCost cost = {.hops = FloorLog2(c.size)};
  if (number == 0) return cost;
  const int64_t span = BinomialSpan(number, c.size);
  cost.messages_sent = c.Messages(request.rank, span);
  cost.elements_sent = c.Sum(request.rank, span);
  if (span > 1) cost.scratch_count = cost.elements_sent;
  return cost;
}

ScheduleCost BinomialScatterCost(const ScheduleRequest& request) {
  const Chunks c(request);
  const int64_t number = NumberOf(request);
  const int64_t span = BinomialSpan(number, c.size);
  const int64_t subtree = c.Sum(request.rank, span);
  ScheduleCost cost = {.hops = FloorLog2(c.size), .elements_sent = subtree - c.Own()};
  for (int64_t k = 0; k < BinomialChildrenOf(number, c.size); ++k) {
    const int64_t ahead = int64_t{1} << k;
    cost.messages_sent += c.Messages(request.rank + ahead, BinomialSpan(number + ahead, c.size));
  }
  if (number > 0 && span > 1) cost.scratch_count = subtree;
  return cost;
}

ScheduleCost BruckAllToAllCost(const ScheduleRequest& request) {
  const int64_t size = request.size;
  ScheduleCost cost = {.hops = CeilLog2(size)};
  for (int64_t bit = 1; bit < size; bit *= 2) {
    int64_t outgoing = 0;
    int64_t incoming = 0;
    for (int64_t distance = 0; distance < size; ++distance) {
      if ((distance & bit) == 0) continue;
      // Here from `gone` ranks behind; what comes has gone the bit in addition.
      const int64_t gone = distance & (bit - 1);
      const int64_t from = (request.rank - gone + size) % size;
      const int64_t from_next = (request.rank - gone - bit + 2 * size) % size;
      outgoing +=
          BlockCount(request, static_cast<Rank>(from), static_cast<Rank>((from + distance) % size));
      incoming += BlockCount(request, static_cast<Rank>(from_next),
                             static_cast<Rank>((from_next + distance) % size));
    }
    cost.messages_sent += outgoing > 0 ? 1 : 0;
    cost.elements_sent += outgoing;
    cost.scratch_count += outgoing + incoming;
  }
  return cost;
}

}  // namespace muster::schedule_internal
