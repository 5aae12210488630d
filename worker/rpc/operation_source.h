// What the worker's server asks of the worker about its operations. Thread-safe.
#ifndef MUSTER_WORKER_RPC_OPERATION_SOURCE_H_
#define MUSTER_WORKER_RPC_OPERATION_SOURCE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "collectives/engine/operation_record.h"

namespace muster {

struct MeshRecord {
  Epoch epoch = 0;                          // of the view whose mesh it is
  std::vector<OperationRecord> operations;  // oldest first
};

class OperationSource {
 public:
  virtual ~OperationSource() = default;
  // Of the mesh in force. FAILED_PRECONDITION if this worker is not `self` in `job`, or has no mesh
  // now.
  virtual absl::StatusOr<MeshRecord> RecentOperations(Incarnation self, const JobId& job) = 0;
};

}  // namespace muster

#endif  // MUSTER_WORKER_RPC_OPERATION_SOURCE_H_
