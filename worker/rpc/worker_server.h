// The worker's own gRPC server: state transfer for learners, inspection for people, the calls of
// meshes over gRPC, the standard health service ("muster.v1.StateTransfer", "muster.v1.Inspection"
// and "" for the whole), and reflection. Thread-safe.
#ifndef MUSTER_WORKER_RPC_WORKER_SERVER_H_
#define MUSTER_WORKER_RPC_WORKER_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/rpc/operation_source.h"
#include "worker/rpc/state_source.h"

namespace muster {

class GrpcListener;  // collectives/transport/grpc/grpc_listener.h

struct WorkerServerOptions {
  // host:port to listen on; an IPv6 address in brackets; port 0 takes a free one.
  std::string listen_address = "127.0.0.1:0";
  // Learners served at once; more get RESOURCE_EXHAUSTED. Each takes a thread.
  int max_learners = 4;
  // Elements of f32 per chunk; at most kMaxChunkElements.
  static constexpr int kMaxChunkElements = 262'144;  // 1 MiB
  int chunk_elements = kMaxChunkElements;
  // Takes the calls of meshes over gRPC; must outlive the server. Null: there are none.
  GrpcListener* meshes = nullptr;
};

class WorkerServer {
 public:
  // Both sources must outlive the server. INVALID_ARGUMENT for an address of another form,
  // UNAVAILABLE if it cannot be bound (for instance because the port is in use); both name the
  // address.
  static absl::StatusOr<std::unique_ptr<WorkerServer>> Start(WorkerServerOptions options,
                                                             StateSource& states,
                                                             OperationSource& operations);
  // Shuts down at once.
  ~WorkerServer();

  int port() const;
  // The listen address with the bound port.
  const std::string& address() const;

  // Stops taking calls, ends the ones under way (at once, those beyond `grace`), waits for their
  // threads. Idempotent. Bounded by `grace` and one StateFeed call.
  void Shutdown(absl::Duration grace = absl::ZeroDuration());

 private:
  class Impl;
  explicit WorkerServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_RPC_WORKER_SERVER_H_
