// The StateTransfer service: streams a StateFeed to each learner. For worker/rpc only.
//
// It uses gRPC's synchronous API on purpose: a learner takes one thread that blocks in turn on the
// feed and on flow control, so at most one chunk per learner is in memory beyond what gRPC's window
// holds. The number of learners is limited. Thread-safe.
#ifndef MUSTER_WORKER_RPC_TRANSFER_SERVICE_H_
#define MUSTER_WORKER_RPC_TRANSFER_SERVICE_H_

#include <atomic>

#include "muster/v1/worker.grpc.pb.h"
#include "worker/rpc/state_source.h"

namespace muster {

class TransferService final : public v1::StateTransfer::Service {
 public:
  // `source` must outlive the service.
  TransferService(StateSource& source, int max_learners, int chunk_elements);

  // Calls under way end at their next look, new ones at once.
  void Stop() { stopping_.store(true, std::memory_order_relaxed); }

  grpc::Status Learn(grpc::ServerContext* context, const v1::LearnRequest* request,
                     grpc::ServerWriter<v1::LearnResponse>* writer) override;

 private:
  StateSource& source_;
  const int max_learners_;
  const int chunk_elements_;
  std::atomic<int> learners_ = 0;
  std::atomic<bool> stopping_ = false;
};

}  // namespace muster

#endif  // MUSTER_WORKER_RPC_TRANSFER_SERVICE_H_
