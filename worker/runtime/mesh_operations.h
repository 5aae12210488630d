// Hands out what the mesh in force has been doing. Thread-safe; meshes come and go.
#ifndef MUSTER_WORKER_RUNTIME_MESH_OPERATIONS_H_
#define MUSTER_WORKER_RUNTIME_MESH_OPERATIONS_H_

#include <memory>

#include "absl/base/thread_annotations.h"
#include "base/control/messages.h"
#include "base/mutex.h"
#include "collectives/engine/communicator.h"
#include "worker/rpc/operation_source.h"

namespace muster {

class MeshOperations : public OperationSource {
 public:
  // `self` is in `job`, and this is the mesh of its view.
  void Show(Incarnation self, const JobId& job, Epoch epoch,
            std::shared_ptr<const Communicator> mesh) ABSL_LOCKS_EXCLUDED(mutex_);
  // There is none any more.
  void Hide() ABSL_LOCKS_EXCLUDED(mutex_);

  absl::StatusOr<MeshRecord> RecentOperations(Incarnation self, const JobId& job) override
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Mutex mutex_;
  Incarnation self_ ABSL_GUARDED_BY(mutex_);
  JobId job_ ABSL_GUARDED_BY(mutex_);
  Epoch epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<const Communicator> mesh_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_MESH_OPERATIONS_H_
