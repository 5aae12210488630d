// The Inspection service: what the worker is doing, for people. For worker/rpc only. Thread-safe.
#ifndef MUSTER_WORKER_RPC_INSPECTION_SERVICE_H_
#define MUSTER_WORKER_RPC_INSPECTION_SERVICE_H_

#include "absl/time/time.h"
#include "muster/v1/worker.grpc.pb.h"
#include "worker/rpc/operation_source.h"

namespace muster {

class InspectionService final : public v1::Inspection::Service {
 public:
  // `source` must outlive the service.
  explicit InspectionService(OperationSource& source) : source_(source) {}

  grpc::Status ListOperations(grpc::ServerContext* context,
                              const v1::ListOperationsRequest* request,
                              v1::ListOperationsResponse* response) override;

 private:
  OperationSource& source_;
};

// Texts are made to fit, so that 1,024 of them stay within a message. What is not over lasts until
// `now`.
v1::WorkerOperations ToProto(const MeshRecord& record, absl::Time now);

}  // namespace muster

#endif  // MUSTER_WORKER_RPC_INSPECTION_SERVICE_H_
