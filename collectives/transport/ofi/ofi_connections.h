// The TCP connections that a provider over IP addresses (net, tcp, tcp;ofi_rxm) opens by itself.
//
// Where the system's congestion control paces (bbr), connections within a host lose a quarter of
// their speed by it. libfabric has no option for that, so its connections are looked for among this
// process's descriptors and given what ours have (socket.h), as soon as a peer's first packet says
// that they stand. They are told by their ends: one is where this rank's, or the peer's, endpoint
// listens, which nobody but the provider has anything to do with. What leaves the host is left
// alone.
//
// Thread-compatible.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_CONNECTIONS_H_
#define MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_CONNECTIONS_H_

#include <map>
#include <string>

#include "base/ids.h"
#include "collectives/transport/socket.h"

namespace muster {

// Gives "reno" to each TCP connection of this process that was accepted at `own` or dialed to
// `theirs`, and whose ends have one IP address. Returns how many have taken it. Requires: nobody
// closes those meanwhile.
int UnpaceConnections(const SocketAddress& own, const SocketAddress& theirs);

class OfiConnections {
 public:
  // Where the endpoints of this rank and of the peer listen, as libfabric writes it. Peers at other
  // IP addresses, and what is no IP address, are passed over.
  void Add(Rank peer, const std::string& own, const std::string& theirs);
  // No peer is left to settle.
  bool empty() const { return ends_.empty(); }
  // A packet from the peer has come. Does its work the first time. Requires: the provider is not at
  // work meanwhile.
  void Settle(Rank peer);

 private:
  struct Ends {
    SocketAddress own;
    SocketAddress theirs;
  };
  std::map<Rank, Ends> ends_;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_CONNECTIONS_H_
