// Network addresses, as peers and people give them.
#include "base/check.h"
#include "proto/rpc/address.h"
#include "tests/fuzz/targets.h"

namespace muster {
namespace {

FuzzOutcome Run(absl::string_view text) {
  const absl::StatusOr<HostPort> address = ParseHostPort(text);
  if (!address.ok()) return Refused(address.status(), {absl::StatusCode::kInvalidArgument});
  MUSTER_CHECK(!address->host.empty() && address->port >= 0 && address->port <= 65'535);
  MUSTER_CHECK(ParseHostPort(ToString(*address)).value() == *address);
  return FuzzOutcome::kAccepted;
}

std::vector<std::string> Seeds() {
  return {"localhost:80", "127.0.0.1:65535", "[::1]:0", "[fe80::1%eth0]:7"};
}

}  // namespace

const FuzzTarget kAddressTarget = {"address", Run, Seeds, 300};

}  // namespace muster
