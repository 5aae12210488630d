// Hybrid sharding: the workers form groups of equal size, each of which holds the whole state, cut
// into one shard for each of its members. Whoever stands at the same place in another group holds a
// copy of the shard. So parameters are gathered within a group (of one host, say), and only the
// sums of shards cross from one to another (Zhao et al., "PyTorch FSDP", VLDB 2023, section 3.2.2).
//
// Which groups there are is a pure function of the strategy and of where members are, so that the
// coordinator and every member form the same.
#ifndef MUSTER_BASE_CONTROL_SHARD_GROUPS_H_
#define MUSTER_BASE_CONTROL_SHARD_GROUPS_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/control/strategy.h"
#include "base/ids.h"

namespace muster {

struct ShardGroups {
  // At least one; all have as many members, in order of rank, and everybody is in one of them.
  std::vector<std::vector<Rank>> groups;
  // Why the members are one group although the strategy asks for several, in a line; empty: they
  // are what it asks for.
  std::string obstacle;

  int count() const { return static_cast<int>(groups.size()); }
  int size() const { return static_cast<int>(groups.front().size()); }
};

// `hosts[i]` is where ranks[i] is. Groups of a given size take neighbours of one host together as
// far as they can. Where not all groups would have as many members everybody is in one, with the
// reason. Requires: as many hosts as ranks; ranks rise.
ShardGroups FormShardGroups(const Strategy& strategy, absl::Span<const Rank> ranks,
                            absl::Span<const std::string> hosts);

}  // namespace muster

#endif  // MUSTER_BASE_CONTROL_SHARD_GROUPS_H_
