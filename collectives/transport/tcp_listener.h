// The one port on which a process takes data-plane connections. It lives as long as the process,
// across views; each view's mesh (tcp_transport.h) draws its connections from it.
//
// A thread of its own accepts, reads each connection's hello and decides:
//   - not a hello of this protocol version: dropped (a port scanner costs at most kHelloBytes and
//   the
//     handshake timeout);
//   - for the epoch that this process is forming now: checked against the mesh's spec, answered and
//     handed over, or refused with a reason;
//   - for an older epoch, or one already formed or given up: refused (fencing);
//   - for a newer epoch: parked until this process starts to form it, up to Options::park_timeout.
// Everything is bounded: connections in handshake, connections parked, time for each.
//
// Thread-safe.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_TCP_LISTENER_H_
#define MUSTER_COLLECTIVES_TRANSPORT_TCP_LISTENER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"

namespace muster {

struct TcpListenerOptions {
  // What to bind: an IPv4 or IPv6 address, or the name of a network interface (its first address
  // is taken, IPv4 before IPv6). "0.0.0.0" and "::" bind all.
  std::string bind = "127.0.0.1";
  uint16_t port = 0;  // 0: any free one
  // The host that peers are told to dial: an address, an interface or a host name (advertise.h).
  // Empty: the bound address, which must then be a specific one.
  std::string advertise;
  absl::Duration handshake_timeout = absl::Seconds(5);  // from accept to a complete hello
  absl::Duration park_timeout = absl::Seconds(60);
  int max_handshakes = 256;  // the oldest is dropped for a new one
  int max_parked = 4096;     // a newcomer is refused
};

class TcpMeshRendezvous;  // tcp_rendezvous.h: what the listener and a forming mesh share

class TcpListener {
 public:
  // UNAVAILABLE or PERMISSION_DENIED name address and port when it can't be bound;
  // INVALID_ARGUMENT an address that is none.
  static absl::StatusOr<std::unique_ptr<TcpListener>> Create(
      const TcpListenerOptions& options = {});

  // Stops accepting and closes what is parked. Meshes already formed live on. Requires: no
  // TcpTransport::Connect in progress.
  ~TcpListener();

  // "host:port" or "[v6]:port", for members to advertise.
  const std::string& address() const { return address_; }
  uint16_t port() const { return port_; }

  // Ends every TcpTransport::Connect in progress for an epoch up to `epoch` with CANCELLED, and
  // refuses all connections up to it from now on.
  void CancelThrough(Epoch epoch);

  // For TcpTransport only.
  TcpMeshRendezvous& rendezvous() { return *rendezvous_; }

 private:
  TcpListener();
  std::string address_;
  uint16_t port_ = 0;
  std::unique_ptr<TcpMeshRendezvous> rendezvous_;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_TCP_LISTENER_H_
