#include "worker/runtime/mesh_operations.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace muster {

void MeshOperations::Show(Incarnation self, const JobId& job, Epoch epoch,
                          std::shared_ptr<const Communicator> mesh) {
  MutexLock lock(&mutex_);
  self_ = self;
  job_ = job;
  epoch_ = epoch;
  mesh_ = std::move(mesh);
}

void MeshOperations::Hide() {
  std::shared_ptr<const Communicator> goes;  // after the lock
  MutexLock lock(&mutex_);
  goes.swap(mesh_);
}

absl::StatusOr<MeshRecord> MeshOperations::RecentOperations(Incarnation self, const JobId& job) {
  MeshRecord record;
  std::shared_ptr<const Communicator> mesh;
  {
    MutexLock lock(&mutex_);
    if (mesh_ == nullptr) {
      return absl::FailedPreconditionError(
          "this worker is in no mesh just now (its view is changing, or its job is over); "
          "operations "
          "of a mesh that failed are in its run directory");
    }
    if (self != self_ || job != job_) {
      return absl::FailedPreconditionError(absl::StrCat("this worker is ", self_.ToString(),
                                                        " in job ", job_, ", not ", self.ToString(),
                                                        " in job ", job));
    }
    record.epoch = epoch_;
    mesh = mesh_;
  }
  record.operations = mesh->RecentOperations();
  return record;
}

}  // namespace muster
