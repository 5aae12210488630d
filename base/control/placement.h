// Who holds which part of the state in a view: a pure function of the view, so that the coordinator
// and every member know it alike.
//
// The state is cut into shards, one for each owner, in rank order. Owners are all members that are
// not leaving, except on the path of parameter servers: there dedicated servers own everything,
// where there are any, or with a mixed strategy most of it. A state that is not sharded is one
// shard, which every member holds. What elements a shard has is state/view_map.h's. Replicas lie a
// fixed stride of owners away, so that each owner holds equally many, and the strides are those
// that put the fewest of them on their owner's host. With hybrid sharding the first group's members
// are the owners, and whoever stands at the same place in another group holds a replica.
#ifndef MUSTER_BASE_CONTROL_PLACEMENT_H_
#define MUSTER_BASE_CONTROL_PLACEMENT_H_

#include <vector>

#include "base/control/messages.h"
#include "base/control/shard_groups.h"
#include "base/ids.h"

namespace muster {

// How much of the state a worker and a parameter server own, relative to others; 0: nothing. Of a
// state that is not sharded: 1 for all that hold it.
//
// With n workers and k dedicated servers a mixed strategy gives a server 2(n - 1) and a worker
// n - k parts, at least 0: then every link carries as much (Jiang et al., "A Unified Architecture
// for Accelerating Distributed DNN Training in Heterogeneous GPU/CPU Clusters", OSDI 2020, section
// 3.3).
struct ShareWeights {
  int64_t worker = 1;
  int64_t server = 1;
};
ShareWeights WeightsOf(const Strategy& strategy, int64_t workers, int64_t servers);

// The groups of those that are not leaving: with several, each holds the whole state. One group
// where state is not sharded.
ShardGroups GroupsOf(const View& view);

// How much of the state each rank owns, relative to others; 0 for those that are leaving, and for
// those outside the first of several groups.
std::vector<int64_t> ShardWeights(const View& view);

// Ranks that own a shard, in order: shard s belongs to ShardOwners(view)[s]. Of a state that is not
// sharded: all that hold it.
std::vector<Rank> ShardOwners(const View& view);

// Of each shard, the ranks that hold it, the owner first.
std::vector<std::vector<Rank>> ShardHolders(const View& view);

// How many of `members` hold the shard of `view` that the fewest of them hold; 0: they do not hold
// the whole state together.
int LeastHolders(const View& view, const std::vector<Incarnation>& members);

}  // namespace muster

#endif  // MUSTER_BASE_CONTROL_PLACEMENT_H_
