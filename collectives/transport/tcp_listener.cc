#include "collectives/transport/tcp_listener.h"

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "collectives/transport/advertise.h"
#include "collectives/transport/socket.h"
#include "collectives/transport/tcp_rendezvous.h"

namespace muster {

TcpListener::TcpListener() = default;
TcpListener::~TcpListener() = default;

absl::StatusOr<std::unique_ptr<TcpListener>> TcpListener::Create(
    const TcpListenerOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(const SocketAddress wanted, ResolveBindHost(options.bind, options.port));
  MUSTER_ASSIGN_OR_RETURN(UniqueFd fd, ListenOn(wanted));
  MUSTER_ASSIGN_OR_RETURN(SocketAddress bound, LocalAddress(fd.get()));
  auto listener = absl::WrapUnique(new TcpListener);
  listener->port_ = bound.port();
  if (!options.advertise.empty()) {
    MUSTER_ASSIGN_OR_RETURN(bound, ResolveAdvertised(options.advertise, bound));
  }
  if (bound.IsUnspecified()) {
    return absl::InvalidArgumentError(absl::StrCat("peers cannot dial ", bound.Host(),
                                                   "; set the address to advertise beside the "
                                                   "one to bind"));
  }
  listener->address_ = bound.ToString();
  listener->rendezvous_ = std::make_unique<TcpMeshRendezvous>(std::move(fd), options);
  return listener;
}

void TcpListener::CancelThrough(Epoch epoch) { rendezvous_->CancelThrough(epoch); }

}  // namespace muster
