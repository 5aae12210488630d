// What a worker writes of a checkpoint: a copy of one part (worker/checkpoint/part_plan.h), so that
// training goes on while it is written.
//
// Every worker that owns a part of the state writes one; where all hold the whole state, all do.
// The whole is nowhere. Parts are whole tensors, shards are not: their pieces move to the tensor's
// writer as parts of the state do when the view changes. Memory: the copy, which is an even share
// of the state and the largest tensor at most, and the mover's window (4 MiB).
#ifndef MUSTER_WORKER_RUNTIME_SAVED_PART_H_
#define MUSTER_WORKER_RUNTIME_SAVED_PART_H_

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/control/messages.h"
#include "base/ids.h"
#include "collectives/engine/communicator.h"
#include "worker/checkpoint/training_state.h"
#include "worker/runtime/replica.h"

namespace muster {

struct SavedPart {
  std::shared_ptr<const ReplicaSnapshot> state;  // of the part's range
  CheckpointPart place;
};

// The part that this worker writes; nothing if it owns none of the state. All members of the view
// call it between the same steps, on the training thread. An error is one of the mesh, or of the
// plan; `culprit` is then the rank held responsible, if one is known.
absl::StatusOr<std::optional<SavedPart>> CopyPartToSave(const View& view, const Replica& replica,
                                                        Communicator& communicator,
                                                        absl::Duration timeout,
                                                        std::optional<Rank>* culprit);

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_SAVED_PART_H_
