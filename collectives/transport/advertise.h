// The address that a process tells its peers to dial, from what its operator wrote.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_ADVERTISE_H_
#define MUSTER_COLLECTIVES_TRANSPORT_ADVERTISE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "collectives/transport/socket.h"

namespace muster {

// `host` is an address or the name of an interface, taken as it is, or a host name, which is looked
// up once, now; with the port of `bound`. May take as long as the resolver does. INVALID_ARGUMENT
// names the host and says why peers could not dial it.
absl::StatusOr<SocketAddress> ResolveAdvertised(absl::string_view host, const SocketAddress& bound);

// Of the addresses that a host name stands for, the bound one if it is among them (the name may
// stand for other interfaces' as well, such as a container bridge's); otherwise the first that
// peers reach and that `bound` listens on: not a loopback address, unless that is what is bound; of
// the family that is bound, or of any if that is "::". Pure.
absl::StatusOr<SocketAddress> ChooseAdvertised(absl::string_view name,
                                               const std::vector<SocketAddress>& found,
                                               const SocketAddress& bound);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_ADVERTISE_H_
