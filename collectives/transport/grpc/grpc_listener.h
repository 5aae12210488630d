// Where a process takes the gRPC calls of its peers' meshes: a service of a gRPC server that the
// process has anyway, or of one of its own. It lives as long as the process, across views; each
// view's mesh (grpc_transport.h) draws its calls from it.
//
// What becomes of a call, by its hello (mesh_admission.h):
//   - for the epoch that this process is forming now: checked against the mesh's spec and welcomed,
//     or refused with FAILED_PRECONDITION and the reason;
//   - for an older epoch, or one already formed or given up: refused in the same way (fencing);
//   - for a newer epoch: it waits until this process starts to form it, for park_timeout at least;
//   - without a hello, or with a damaged one: INVALID_ARGUMENT.
//
// Thread-safe.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_GRPC_GRPC_LISTENER_H_
#define MUSTER_COLLECTIVES_TRANSPORT_GRPC_GRPC_LISTENER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"

namespace grpc {
class Server;
class ServerBuilder;
}  // namespace grpc

namespace muster {

struct GrpcListenerOptions {
  absl::Duration park_timeout = absl::Seconds(60);
  int max_parked = 4096;  // a newcomer is refused
};

class GrpcRendezvous;  // grpc_rendezvous.h: what the listener and a forming mesh share

class GrpcListener {
 public:
  explicit GrpcListener(const GrpcListenerOptions& options = {});
  // Starts a server that serves nothing else, at `listen_address` (host:port; port 0 takes a free
  // one). UNAVAILABLE: it cannot be listened on.
  static absl::StatusOr<std::unique_ptr<GrpcListener>> Serve(
      const std::string& listen_address = "127.0.0.1:0", const GrpcListenerOptions& options = {});
  // Requires: no GrpcTransport::Connect in progress, no server that it was added to. Meshes of a
  // server of its own must have been closed.
  ~GrpcListener();

  // Adds the service, and settings for messages of megabytes, to a server about to be built. The
  // server takes all methods that it has no other service for.
  void AddTo(grpc::ServerBuilder& builder);

  // Of Serve: what peers dial.
  const std::string& address() const { return address_; }

  // Ends every GrpcTransport::Connect in progress for an epoch up to `epoch` with CANCELLED, and
  // refuses all calls up to it from now on.
  void CancelThrough(Epoch epoch);

  // For GrpcTransport only.
  GrpcRendezvous& rendezvous() { return *rendezvous_; }

 private:
  const std::unique_ptr<GrpcRendezvous> rendezvous_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_GRPC_GRPC_LISTENER_H_
