// What each member of a view holds of the flat space: a pure function of view and layout, so that
// all members know it alike. Who holds which shard is base/control/placement.h's; a shard is its
// owner's slice of every bucket.
#ifndef MUSTER_STATE_VIEW_MAP_H_
#define MUSTER_STATE_VIEW_MAP_H_

#include "absl/status/statusor.h"
#include "base/control/messages.h"
#include "state/bucket_slices.h"
#include "state/layout.h"
#include "state/reshard_plan.h"
#include "state/shard_map.h"

namespace muster {

struct ViewMap {
  // By rank: what a rank owns of each bucket, nothing for those that are no owners. With several
  // groups (base/control/shard_groups.h) by place in the group: what each group's member holds.
  BucketSlices slices;
  // By worker, or place in the group: whose order each element of a gradient is summed in. Equal to
  // `slices` where all members are workers and all own equal shares.
  BucketSlices order;
  ShardMap map;  // by rank
};

// INVALID_ARGUMENT if the view has more members than slices can be cut for.
absl::StatusOr<ViewMap> MapOf(const View& view, const Layout& layout);

// The moves that `activate.move` stands for, among the ranks of activate.view. Requires: there is
// one.
absl::StatusOr<ReshardPlan> PlanMove(const Activate& activate, const Layout& layout);

}  // namespace muster

#endif  // MUSTER_STATE_VIEW_MAP_H_
