// Network addresses as text: host:port, an IPv6 address in brackets. Pure except where said.
#ifndef MUSTER_PROTO_RPC_ADDRESS_H_
#define MUSTER_PROTO_RPC_ADDRESS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster {

struct HostPort {
  std::string host;  // without brackets
  int port = 0;      // 0 .. 65535
  bool operator==(const HostPort&) const = default;
};

// INVALID_ARGUMENT says what is wrong with `address` and shows the form.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view address);

// The same for one to connect to, whose port must not be 0.
absl::StatusOr<HostPort> ParseAddressToDial(absl::string_view address);

// With brackets where the host needs them.
std::string ToString(const HostPort& address);

// Whether `host` is this machine: localhost, this machine's name, or an address that is a loopback
// one, that of one of its interfaces, or 0.0.0.0. Asks no name server, so another name that leads
// here is not known.
bool IsThisMachine(const std::string& host);

// Why `address` cannot be listened on, found by trying; UNAVAILABLE with the address and the
// system's words. OK if it could be. Resolves names; opens and closes sockets.
absl::Status ProbeListen(const HostPort& address);

}  // namespace muster

#endif  // MUSTER_PROTO_RPC_ADDRESS_H_
