#include "worker/rpc/worker_server.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "collectives/transport/grpc/grpc_listener.h"
#include "proto/rpc/server.h"
#include "worker/rpc/inspection_service.h"
#include "worker/rpc/transfer_service.h"

namespace muster {

class WorkerServer::Impl {
 public:
  Impl(const WorkerServerOptions& options, StateSource& states, OperationSource& operations)
      : transfer_(states, options.max_learners, options.chunk_elements), inspection_(operations) {}

  absl::Status Listen(const WorkerServerOptions& options) {
    ServerOptions server;
    server.listen_address = options.listen_address;
    server.services = {{&transfer_, v1::StateTransfer::service_full_name()},
                       {&inspection_, v1::Inspection::service_full_name()}};
    // Learners block one thread each; the rest polls and answers health checks.
    server.max_threads = options.max_learners + 8;
    if (options.meshes != nullptr) {
      server.add = [&](grpc::ServerBuilder& builder) { options.meshes->AddTo(builder); };
    }
    MUSTER_ASSIGN_OR_RETURN(running_, StartServer(server));
    return absl::OkStatus();
  }

  void Shutdown(absl::Duration grace) {
    absl::MutexLock lock(&shutdown_mutex_);
    if (stopped_) return;
    stopped_ = true;
    transfer_.Stop();
    ShutdownServer(*running_.server, grace);
  }

  const RunningServer& running() const { return running_; }

 private:
  TransferService transfer_;
  InspectionService inspection_;
  RunningServer running_;
  absl::Mutex shutdown_mutex_;
  bool stopped_ ABSL_GUARDED_BY(shutdown_mutex_) = false;
};

absl::StatusOr<std::unique_ptr<WorkerServer>> WorkerServer::Start(WorkerServerOptions options,
                                                                  StateSource& states,
                                                                  OperationSource& operations) {
  if (options.max_learners < 1 || options.chunk_elements < 1 ||
      options.chunk_elements > WorkerServerOptions::kMaxChunkElements) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "worker server: expected at least one learner and chunks of 1 to %d elements, got %d and "
        "%d",
        WorkerServerOptions::kMaxChunkElements, options.max_learners, options.chunk_elements));
  }
  auto impl = std::make_unique<Impl>(options, states, operations);
  MUSTER_RETURN_IF_ERROR(impl->Listen(options));
  return std::unique_ptr<WorkerServer>(new WorkerServer(std::move(impl)));
}

WorkerServer::WorkerServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WorkerServer::~WorkerServer() { Shutdown(); }

int WorkerServer::port() const { return impl_->running().port; }
const std::string& WorkerServer::address() const { return impl_->running().address; }
void WorkerServer::Shutdown(absl::Duration grace) { impl_->Shutdown(grace); }

}  // namespace muster
