// All-reduce inside the hosts first, then between them: the links between hosts, the slow ones,
// carry each element once per host instead of once per rank, and all ranks of a host share in it
// (as "BlueConnect", Cho et al. 2019, and NCCL's and Horovod's hierarchical all-reduce). Pure
// functions.
//
// 1. In each host a direct reduce-scatter: local rank i of m gets the host's sum of chunk i of m.
// 2. In each lane an all-reduce between hosts: around a ring where there are few, which keeps the
//    wires fullest; by halving-doubling (circulant.h) where the ring's hops would add up. A lane is
//    a range of elements with one owner in each host: with m ranks in every host there are m lanes,
//    one per local rank. Where hosts differ, the lanes are the coarsest cut that refines every
//    host's own, so that 7 + 8 ranks share the work 1/7 and 1/8 each.
// 3. In each host a direct all-gather.
//
// Not the canonical order; one owner makes each sum, so all ranks hold the same bits. Partial sums
// travel: not for 16-bit floats.
#ifndef MUSTER_COLLECTIVES_SCHEDULE_HIERARCHICAL_H_
#define MUSTER_COLLECTIVES_SCHEDULE_HIERARCHICAL_H_

#include <cstdint>
#include <vector>

#include "collectives/schedule/schedule.h"
#include "collectives/schedule/schedule_request.h"

namespace muster::schedule_internal {

// Up to so many hosts go around a ring.
inline constexpr int kMostHostsInRing = 8;

// Requires: a valid all-reduce request.
Schedule HierarchicalAllReduce(const ScheduleRequest& request);

// The ranks of each host, rising, in the order of their first ranks.
std::vector<std::vector<Rank>> RanksByHost(const std::vector<int32_t>& hosts);

// A range of elements and, for each host, which of its ranks owns it (a local number).
struct HostLane {
  int64_t offset = 0;
  int64_t count = 0;
  std::vector<int> owners;
};
std::vector<HostLane> HostLanes(int64_t count, const std::vector<std::vector<Rank>>& hosts);

}  // namespace muster::schedule_internal

#endif  // MUSTER_COLLECTIVES_SCHEDULE_HIERARCHICAL_H_
