// A mesh over gRPC, for networks that let only HTTP/2 through. Behaves as transport.h says.
//
// Each rank dials every other (MeshMember::address is where that process's GrpcListener is served)
// and sends to it over that connection; grpc_wire.h has the calls. The hello carries the fleet
// token, the epoch and both incarnations, as over TCP. Large messages leave from the sender's
// memory and are copied once, by the receiver's driver.
//
// A killed peer is noticed when its connection closes. A frozen peer, or one whose host has
// vanished, is noticed by HTTP/2's keepalive, after 10 to 25 s; operations have earlier deadlines.
//
// A process that frees and allocates chunks all the time should keep them from going back to the
// system (TuneProcess in base/daemon.h).
#ifndef MUSTER_COLLECTIVES_TRANSPORT_GRPC_GRPC_TRANSPORT_H_
#define MUSTER_COLLECTIVES_TRANSPORT_GRPC_GRPC_TRANSPORT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/transport/grpc/grpc_listener.h"
#include "collectives/transport/tcp_transport.h"
#include "collectives/transport/transport.h"

namespace muster {

class GrpcTransport {
 public:
  // Forms the mesh, blocking until all pairs are connected. Errors as TcpTransport::Connect. Of
  // `spec.options`, channels are connections per ordered pair; 0: what measured best on loopback.
  static absl::StatusOr<std::unique_ptr<Transport>> Connect(GrpcListener& listener, MeshSpec spec,
                                                            absl::Time deadline);
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_GRPC_GRPC_TRANSPORT_H_
