// Requests for tests: every collective, algorithm, shape and in-place use for a world size.
#ifndef MUSTER_TESTS_COLLECTIVES_SCHEDULE_REQUEST_GRID_H_
#define MUSTER_TESTS_COLLECTIVES_SCHEDULE_REQUEST_GRID_H_

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/schedule/make_schedule.h"
#include "collectives/schedule/schedule_request.h"

namespace muster {

// Which ranks work in place.
enum class InPlace { kNone, kAll, kOddRanks };

struct World {
  std::vector<ScheduleRequest> requests;  // by rank
  std::string text;
};

inline World MakeWorld(ScheduleRequest request, InPlace in_place) {
  World world;
  world.text = absl::StrCat(
      Name(request.collective), " ", Name(request.algorithm), " ranks ", request.size, " count ",
      request.count, " counts ", absl::StrJoin(request.counts, ","), " root ", request.root,
      " destination ", request.destination, " contributors ", request.contributors, " order ",
      absl::StrJoin(request.order_counts, ","), " hosts ", absl::StrJoin(request.hosts, ","),
      " in place ", static_cast<int>(in_place), " half ", request.half_precision);
  for (request.rank = 0; request.rank < request.size; ++request.rank) {
    request.in_place =
        in_place == InPlace::kAll || (in_place == InPlace::kOddRanks && request.rank % 2 == 1);
    world.requests.push_back(request);
  }
  return world;
}

inline bool CanBeInPlace(Collective collective) {
  return collective != Collective::kAllToAll && collective != Collective::kSendReceive;
}

// Numbers of elements: none, around the number of ranks, and a prime that cuts unevenly.
inline std::vector<int64_t> TotalsFor(int size) {
  const std::set<int64_t> totals = {0, 1, size - 1, size, size + 1, 211};
  return {totals.begin(), totals.end()};
}

// All ranks of small worlds, some of larger ones.
inline std::vector<Rank> RootsFor(int size) {
  std::set<Rank> roots = {0, 1 % size, size / 2, size - 1};
  for (Rank root = 0; size <= 9 && root < size; ++root) roots.insert(root);
  return {roots.begin(), roots.end()};
}

// Even chunks, uneven ones with holes, and everything on one rank.
inline std::vector<std::vector<int64_t>> ChunkCountsFor(int64_t total, int size) {
  std::vector<int64_t> uneven(size), lopsided(size);
  for (int i = 0; i < size; ++i) uneven[i] = (i * total + 3 * i) % 5;
  lopsided[total % size] = total;
  return {EvenCounts(total, size), uneven, lopsided};
}

// Groupings into hosts: one, each rank its own, two unequal ones (7 + 8 for 15), interleaved ones,
// and growing ones.
inline std::vector<std::vector<int32_t>> HostsFor(int size) {
  std::vector<int32_t> one(size, 7), own(size), two(size), interleaved(size), growing(size);
  int32_t host = 0;
  for (int i = 0, next = 1; i < size; ++i) {
    own[i] = size - i;
    two[i] = i < size / 2 ? 0 : 1;
    interleaved[i] = i % 3;
    if (i == next) next += ++host + 1;
    growing[i] = host;
  }
  return {one, own, two, interleaved, growing};
}

// One worker, some, all but one, all.
inline std::vector<int> ContributorsFor(int size) {
  std::set<int> contributors = {1, (size + 1) / 2, std::max(1, size - 1), size};
  return {contributors.begin(), contributors.end()};
}

// As ChunkCountsFor, and chunks of servers alone and of workers alone.
inline std::vector<std::vector<int64_t>> OwnedCountsFor(int64_t total, int size, int contributors) {
  std::vector<std::vector<int64_t>> all = ChunkCountsFor(total, size);
  if (contributors == size) return all;
  for (const bool servers : {false, true}) {
    const std::vector<int64_t> part =
        EvenCounts(total, servers ? size - contributors : contributors);
    all.emplace_back(size);
    std::copy(part.begin(), part.end(), all.back().begin() + (servers ? contributors : 0));
  }
  return all;
}

// Cuts of `total` elements: even, uneven with holes, and all on one of them.
inline std::vector<std::vector<int64_t>> OrderCountsFor(int64_t total, int contributors) {
  std::vector<int64_t> uneven(contributors), lopsided(contributors);
  int64_t left = total;
  for (int i = 0; i + 1 < contributors; ++i) {
    uneven[i] = std::min(left, (2 * total * (i % 3)) / (3 * contributors));
    left -= uneven[i];
  }
  uneven.back() = left;
  lopsided[total % contributors] = total;
  return {EvenCounts(total, contributors), uneven, lopsided};
}

// Calls visit(request) for every shape of one collective and algorithm, with rank 0.
template <typename Visitor>
void ForEachShape(Collective collective, Algorithm algorithm, int size, Visitor visit) {
  ScheduleRequest request = {.collective = collective, .algorithm = algorithm, .size = size};
  const auto visit_precisions = [&] {
    request.half_precision = false;
    visit(request);
    if (!Reduces(collective) || !KeepsCanonicalOrder(collective, algorithm)) return;
    request.half_precision = true;
    visit(request);
  };
  const auto visit_roots = [&] {
    for (request.root = 0; const Rank root : RootsFor(size)) {
      request.root = root;
      visit_precisions();
    }
    request.root = 0;
  };
  if (collective == Collective::kBarrier) return visit(request);
  for (const int64_t total : TotalsFor(size)) {
    switch (collective) {
      case Collective::kAllReduce: {
        std::vector<std::vector<int64_t>> cuts = ChunkCountsFor(total, size);
        cuts[0].clear();  // Even chunks are the default.
        for (const auto& counts : cuts) {
          request.counts = counts;
          request.count = counts.empty() ? total : 0;
          if (algorithm == Algorithm::kStar) {
            visit_roots();
          } else if (algorithm == Algorithm::kHierarchical) {
            for (const auto& hosts : HostsFor(size)) {
              request.hosts = hosts;
              visit_precisions();
            }
          } else {
            visit_precisions();
          }
        }
        break;
      }
      case Collective::kBroadcast:
      case Collective::kReduce:
        request.count = total;
        visit_roots();
        break;
      case Collective::kReduceScatter:
      case Collective::kAllGather:
        for (const auto& counts : ChunkCountsFor(total, size)) {
          request.counts = counts;
          visit_precisions();
        }
        break;
      case Collective::kGather:
      case Collective::kScatter:
        for (const auto& counts : ChunkCountsFor(total, size)) {
          request.counts = counts;
          visit_roots();
        }
        break;
      case Collective::kAllToAll: {
        request.counts.clear();
        request.count = total / size;
        visit(request);
        request.count = 0;
        request.counts.resize(static_cast<size_t>(size) * static_cast<size_t>(size));
        for (size_t i = 0; i < request.counts.size(); ++i) {
          request.counts[i] = static_cast<int64_t>(i * i + i / 3) % (1 + total % 4);
        }
        visit(request);
        // One rank receives nothing, and one sends to one alone.
        for (int i = 0; i < size; ++i) {
          request.counts[static_cast<size_t>(i * size)] = 0;
          request.counts[static_cast<size_t>((size - 1) * size + i)] = i == size - 1 ? total : 0;
        }
        visit(request);
        break;
      }
      case Collective::kSendReceive:
        request.count = total;
        for (const Rank root : RootsFor(size)) {
          for (const Rank destination : RootsFor(size)) {
            if (root == destination) continue;
            request.root = root;
            request.destination = destination;
            visit(request);
          }
        }
        break;
      case Collective::kPush:
      case Collective::kPull:
        for (const int contributors : ContributorsFor(size)) {
          request.contributors = contributors;
          for (const auto& counts : OwnedCountsFor(total, size, contributors)) {
            request.counts = counts;
            std::vector<std::vector<int64_t>> orders = {{}};
            if (collective == Collective::kPush) {
              orders = OrderCountsFor(VectorCount(request), contributors);
              // They say nothing where sums are made by host.
              if (algorithm == Algorithm::kHierarchical) orders.resize(1);
            }
            for (const auto& order : orders) {
              request.order_counts = order;
              if (algorithm != Algorithm::kHierarchical) {
                visit_precisions();
                continue;
              }
              if (total == size - 1 || total == size) continue;  // as total == size + 1
              // In large worlds the uneven ones alone.
              const std::vector<std::vector<int32_t>> hosts = HostsFor(size);
              for (size_t i = size > 17 ? 2 : 0; i < hosts.size(); ++i) {
                request.hosts = hosts[i];
                visit_precisions();
              }
            }
          }
        }
        break;
      case Collective::kBarrier:
        break;
    }
  }
}

// Calls visit(World) for every shape and in-place use of one collective and algorithm.
template <typename Visitor>
void ForEachWorld(Collective collective, Algorithm algorithm, int size, Visitor visit) {
  ForEachShape(collective, algorithm, size, [&](const ScheduleRequest& request) {
    for (const InPlace in_place : {InPlace::kNone, InPlace::kAll, InPlace::kOddRanks}) {
      if (in_place != InPlace::kNone && !CanBeInPlace(collective)) continue;
      visit(MakeWorld(request, in_place));
    }
  });
}

// One world of a collective with `per_rank` elements and one more.
inline World WorldOf(Collective collective, Algorithm algorithm, int size, int per_rank, bool half,
                     InPlace in_place) {
  const int64_t total = per_rank * size + 1;
  ScheduleRequest request = {.collective = collective, .algorithm = algorithm, .size = size};
  request.half_precision = half;
  switch (collective) {
    case Collective::kAllReduce:
      request.count = total;
      if (algorithm == Algorithm::kStar) request.root = size / 2;
      if (algorithm == Algorithm::kHierarchical) request.hosts = HostsFor(size)[2];
      break;
    case Collective::kBroadcast:
    case Collective::kReduce:
      request.count = total;
      request.root = size / 2;
      break;
    case Collective::kReduceScatter:
    case Collective::kAllGather:
      request.counts = EvenCounts(total, size);
      break;
    case Collective::kGather:
    case Collective::kScatter:
      request.counts = EvenCounts(total, size);
      request.root = size / 2;
      break;
    case Collective::kAllToAll:
      request.count = per_rank;
      break;
    case Collective::kSendReceive:
      request.count = total;
      request.root = size / 2;
      request.destination = size - 1 == size / 2 ? 0 : size - 1;
      break;
    case Collective::kPush:
    case Collective::kPull:
      request.counts = EvenCounts(total, size);
      request.contributors = (size + 1) / 2;
      if (collective == Collective::kPush) {
        request.order_counts = EvenCounts(total, request.contributors);
      }
      if (algorithm == Algorithm::kHierarchical) request.hosts = HostsFor(size)[2];
      break;
    case Collective::kBarrier:
      break;
  }
  return MakeWorld(request, in_place);
}

inline std::vector<Schedule> MakeSchedules(const World& world) {
  std::vector<Schedule> schedules;
  for (const ScheduleRequest& request : world.requests) {
    schedules.push_back(MakeSchedule(request).value());
  }
  return schedules;
}

}  // namespace muster

#endif  // MUSTER_TESTS_COLLECTIVES_SCHEDULE_REQUEST_GRID_H_
