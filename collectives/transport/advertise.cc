#include "collectives/transport/advertise.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace muster {
namespace {

absl::Status Unusable(absl::string_view name, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("host name '", name, "' to advertise: ", why,
                   "; give a name or an address of this machine that the other workers reach"));
}

std::string HostsOf(const std::vector<SocketAddress>& addresses) {
  return absl::StrJoin(addresses, ", ", [](std::string* out, const SocketAddress& address) {
    out->append(address.Host());
  });
}

}  // namespace

absl::StatusOr<SocketAddress> ChooseAdvertised(absl::string_view name,
                                               const std::vector<SocketAddress>& found,
                                               const SocketAddress& bound) {
  for (const SocketAddress& address : found) {
    if (address.storage.ss_family == bound.storage.ss_family && address.Host() == bound.Host()) {
      return bound;
    }
  }
  std::vector<SocketAddress> reachable = found;
  if (!bound.IsLoopback()) {
    std::erase_if(reachable, [](const SocketAddress& address) { return address.IsLoopback(); });
    if (reachable.empty()) {
      return Unusable(name, absl::StrCat("it stands only for a loopback address (", HostsOf(found),
                                         "), which other machines cannot dial"));
    }
  }
  const bool any_family = bound.IsUnspecified() && bound.storage.ss_family == AF_INET6;
  const auto chosen =
      std::find_if(reachable.begin(), reachable.end(), [&](const SocketAddress& address) {
        return any_family || address.storage.ss_family == bound.storage.ss_family;
      });
  if (chosen == reachable.end()) {
    return Unusable(
        name,
        absl::StrCat("it stands for ", HostsOf(reachable),
                     ", which is not of the same IP version as the bound address ", bound.Host()));
  }
  SocketAddress address = *chosen;
  address.set_port(bound.port());
  return address;
}

absl::StatusOr<SocketAddress> ResolveAdvertised(absl::string_view host,
                                                const SocketAddress& bound) {
  const absl::StatusOr<SocketAddress> local = ResolveBindHost(host, bound.port());
  if (local.ok()) return local;
  const absl::StatusOr<std::vector<SocketAddress>> found = LookUpHost(host);
  if (!found.ok()) {
    return Unusable(host, absl::StrCat("it is neither an IP address nor an interface here, and ",
                                       found.status().message()));
  }
  return ChooseAdvertised(host, *found, bound);
}

}  // namespace muster
