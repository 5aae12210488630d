#include "worker/sync/shard_mesh.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/control/placement.h"
#include "base/status_macros.h"

namespace muster {

absl::StatusOr<ShardMesh> ShardMesh::Connect(Communicator& all, const View& view,
                                             absl::Duration timeout) {
  ShardMesh mesh(all);
  const ShardGroups groups = GroupsOf(view);
  if (groups.count() == 1) return mesh;
  CollectiveOptions options;
  options.timeout = timeout;
  options.label = "shard groups";
  for (int32_t number = 0; number < groups.count(); ++number) {
    const std::vector<Rank>& group = groups.groups[static_cast<size_t>(number)];
    const auto self = std::find(group.begin(), group.end(), all.rank());
    if (self == group.end()) continue;
    const auto place = static_cast<int32_t>(self - group.begin());
    MUSTER_ASSIGN_OR_RETURN(mesh.within_, all.Split(number, place, options));
    MUSTER_ASSIGN_OR_RETURN(mesh.across_, all.Split(place, number, options));
  }
  return mesh;
}

}  // namespace muster
