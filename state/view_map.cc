#include "state/view_map.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/control/placement.h"
#include "base/status_macros.h"

namespace muster {

absl::StatusOr<ViewMap> MapOf(const View& view, const Layout& layout) {
  const ShardGroups groups = GroupsOf(view);
  const bool grouped = groups.count() > 1;
  const std::vector<int64_t> weights =
      grouped ? std::vector<int64_t>(static_cast<size_t>(groups.size()), 1) : ShardWeights(view);
  MUSTER_ASSIGN_OR_RETURN(BucketSlices slices, BucketSlices::Weighted(layout, weights));
  MUSTER_ASSIGN_OR_RETURN(
      BucketSlices order,
      BucketSlices::Even(layout, grouped ? groups.size() : std::max(1, view.workers())));
  const std::vector<Rank> owners = ShardOwners(view);
  const std::vector<std::vector<Rank>> holders = ShardHolders(view);
  std::vector<Shard> shards;
  if (!view.strategy.sharded()) {
    shards.push_back({{0, layout.padded_count()}, {holders[0].begin(), holders[0].end()}});
  } else {
    for (int bucket = 0; bucket < slices.bucket_count(); ++bucket) {
      for (size_t shard = 0; shard < owners.size(); ++shard) {
        const std::vector<Rank>& ranks = holders[shard];
        const Rank place = grouped ? static_cast<Rank>(shard) : owners[shard];
        shards.push_back({slices.SliceOf(bucket, place), {ranks.begin(), ranks.end()}});
      }
    }
  }
  MUSTER_ASSIGN_OR_RETURN(
      ShardMap map, ShardMap::Create(layout.padded_count(), static_cast<int>(view.members.size()),
                                     std::move(shards)));
  return ViewMap{std::move(slices), std::move(order), std::move(map)};
}

absl::StatusOr<ReshardPlan> PlanMove(const Activate& activate, const Layout& layout) {
  const View& view = activate.view;
  const MoveSource& source = *activate.move;
  MUSTER_ASSIGN_OR_RETURN(const ViewMap from, MapOf(source.view, layout));
  MUSTER_ASSIGN_OR_RETURN(const ViewMap to, MapOf(view, layout));
  std::vector<std::optional<Rank>> givers(source.view.members.size());
  for (size_t i = 0; i < givers.size(); ++i) {
    const Incarnation member = source.view.members[i].incarnation;
    if (std::find(source.givers.begin(), source.givers.end(), member) == source.givers.end()) {
      continue;
    }
    if (const Rank rank = view.RankOf(member); rank >= 0) givers[i] = rank;
  }
  std::vector<Rank> everybody(view.members.size());
  std::iota(everybody.begin(), everybody.end(), 0);
  return PlanReshard(view.resume, HoldingsOf(from.map, givers, view.resume), to.map, everybody,
                     static_cast<int>(view.members.size()));
}

}  // namespace muster
