// Among whom the steps of a view communicate: all its members and, with hybrid sharding
// (base/control/shard_groups.h), those of this rank's group and those with the same place in the
// others.
//
// Cheap to copy; the copies share the subgroups. Used like the communicator.
#ifndef MUSTER_WORKER_SYNC_SHARD_MESH_H_
#define MUSTER_WORKER_SYNC_SHARD_MESH_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/control/messages.h"
#include "collectives/engine/communicator.h"

namespace muster {

class ShardMesh {
 public:
  // Of a view with one group. `all` must outlive the object.
  explicit ShardMesh(Communicator& all) : all_(&all) {}
  // All ranks of the view call it, and wait where there are several groups. Errors are those of the
  // mesh. Requires: the communicator's ranks are the members of `view`, none of whom is leaving.
  static absl::StatusOr<ShardMesh> Connect(Communicator& all, const View& view,
                                           absl::Duration timeout);

  Communicator& all() const { return *all_; }
  // By place in the group.
  Communicator& within() const { return within_ == nullptr ? *all_ : *within_; }
  // By number of the group; null where there is one.
  Communicator* across() const { return across_.get(); }

 private:
  Communicator* all_;
  std::shared_ptr<Communicator> within_;
  std::shared_ptr<Communicator> across_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_SYNC_SHARD_MESH_H_
