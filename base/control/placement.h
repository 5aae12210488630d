// Who holds which part of the state in a view: a pure function of the view, so that the coordinator
// and every member know it alike.
//
// The state is cut into shards, one for each member that is not leaving, in rank order; a state
// that is not sharded is one shard, which every member holds. What elements a shard has is
// state/shard_map.h's. Replicas lie a fixed stride of owners away, so that each member holds
// equally many, and the strides are those that put the fewest of them on their owner's host.
#ifndef MUSTER_BASE_CONTROL_PLACEMENT_H_
#define MUSTER_BASE_CONTROL_PLACEMENT_H_

#include <vector>

#include "base/control/messages.h"
#include "base/ids.h"

namespace muster {

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
