// Gathers the parameters of blocks from the owners of their shards: on every member, or, where
// members serve, on those that compute. With hybrid sharding each group gathers from its own.
//
// One object serves one view whose state is in shards. Used by one thread, except that the
// communicator may be aborted from any.
#ifndef MUSTER_WORKER_SYNC_PARAMETER_GATHER_H_
#define MUSTER_WORKER_SYNC_PARAMETER_GATHER_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/control/messages.h"
#include "base/dtype.h"
#include "base/ids.h"
#include "collectives/engine/communicator.h"
#include "state/layout.h"
#include "state/range.h"
#include "state/view_map.h"
#include "worker/sync/shard_mesh.h"

namespace muster {

class ParameterGather {
 public:
  // All must outlive the object. Requires: the mesh is that of `view`. `timeout`: of one
  // collective; `dtype`: of the parameters.
  ParameterGather(const ShardMesh& mesh, const Layout& layout, const View& view,
                  absl::Duration timeout, DType dtype = DType::kF32);

  // Where this rank's own elements of a range lie.
  using OwnPart = absl::FunctionRef<const void*(Range)>;

  // Starts to gather `block` into `parameters`, the block's, from its first element on, which
  // belong to the gather until WaitFor(block). A parameter server only gives its part; null. In the
  // same order on every rank of the view.
  void Start(Step step, int block, OwnPart own, void* parameters);
  bool started(int block) const { return !works_[static_cast<size_t>(block)].empty(); }
  // Waits until a block that was started is here. After an error every call returns it.
  absl::Status WaitFor(int block);

  // Time spent blocked since the last call.
  absl::Duration TakeWaited();
  const absl::Status& status() const { return status_; }
  // The rank held responsible for an error, if one is known.
  std::optional<Rank> culprit() const { return culprit_; }

 private:
  const ShardMesh mesh_;
  Communicator& communicator_;  // of the group
  const Layout& layout_;
  const ViewMap map_;
  const bool serves_;
  const Algorithm pull_algorithm_;  // of parameter servers
  const int workers_;
  const absl::Duration timeout_;
  const DType dtype_;
  std::vector<std::vector<Work>> works_;  // by block
  absl::Duration waited_;
  absl::Status status_;
  std::optional<Rank> culprit_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_SYNC_PARAMETER_GATHER_H_
