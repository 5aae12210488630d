// A mesh over TCP: for each pair of ranks one control connection (goodbye, abort, death) and
// `channels` data connections. Behaves as transport.h says.
//
// Of each pair the higher rank dials. The handshake (tcp_handshake.h) carries the fleet token, the
// epoch and both incarnations, so nothing of another view, job or process gets in.
//
// A killed peer is noticed when the kernel closes its control connection. A vanished host is
// noticed by TCP keepalive and TCP_USER_TIMEOUT (peer_timeout). A frozen peer is not noticed here:
// operations have deadlines.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_TCP_TRANSPORT_H_
#define MUSTER_COLLECTIVES_TRANSPORT_TCP_TRANSPORT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "collectives/transport/tcp_listener.h"
#include "collectives/transport/transport.h"

namespace muster {

struct TcpTransportOptions {
  // Data connections per peer. A network that limits single flows wants several. Equal on all ranks
  // (checked by the handshake). 0: one, which measured best on loopback and on slow wires.
  int channels = 0;
  // Kernel buffers of a data connection. 0 leaves them to the kernel's auto-tuning.
  int socket_buffer_bytes = 0;
  absl::Duration peer_timeout = absl::Seconds(20);
  TransportLimits limits;
};

struct MeshMember {
  Incarnation incarnation;
  std::string address;  // TcpListener::address() of that process
  // Its host's name, where members are told apart by that: those of one name may share memory.
  std::string host;
};

// One mesh of one epoch. Equal on all ranks but for `rank`.
struct MeshSpec {
  std::string token;  // names fleet and job; at most 256 bytes. An identity check, not a secret.
  Epoch epoch = 0;    // > 0, and above every epoch this listener formed for the token before
  Rank rank = 0;
  std::vector<MeshMember> members;  // in rank order; members[rank] is this process
  TcpTransportOptions options;
  // Where this mesh is a part of a larger one: the members' ranks there, by which messages and
  // failures name them. Empty: their ranks here.
  std::vector<Rank> ranks_in_whole;
};

class TcpTransport {
 public:
  // Forms the mesh, blocking until all pairs are connected. World size 1 is legal.
  //   DEADLINE_EXCEEDED    names the ranks still missing
  //   UNAVAILABLE          a peer's address refuses connections, or it hung up
  //   FAILED_PRECONDITION  a peer refused us, with its reason (stale epoch, other incarnation, ...)
  //   CANCELLED            TcpListener::CancelThrough
  //   INVALID_ARGUMENT     the spec itself
  // CulpritOf(status) (culprit.h) is the rank to blame, or one of those missing.
  static absl::StatusOr<std::unique_ptr<Transport>> Connect(TcpListener& listener, MeshSpec spec,
                                                            absl::Time deadline);
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_TCP_TRANSPORT_H_
