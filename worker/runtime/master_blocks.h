// The f32 parameters of a state that may be in parts, block by block.
#ifndef MUSTER_WORKER_RUNTIME_MASTER_BLOCKS_H_
#define MUSTER_WORKER_RUNTIME_MASTER_BLOCKS_H_

#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/control/messages.h"
#include "base/ids.h"
#include "worker/runtime/replica.h"
#include "worker/sync/shard_mesh.h"

namespace muster {

// Calls visit(block, parameters) for each block, from the first on; on a parameter server never.
// All ranks of the view call it between the same steps, on the training thread. Memory: the largest
// block. An error is one of the mesh; `culprit` is then the rank held responsible, if one is known.
absl::Status VisitMasterBlocks(const View& view, const ShardMesh& mesh, const Replica& replica,
                               Step step, absl::Duration timeout, std::optional<Rank>* culprit,
                               absl::FunctionRef<void(int block, const float*)> visit);

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_MASTER_BLOCKS_H_
