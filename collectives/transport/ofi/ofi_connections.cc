#include "collectives/transport/ofi/ofi_connections.h"

#include <dirent.h>
#include <netinet/in.h>

#include <cstring>
#include <memory>
#include <optional>

#include "absl/strings/numbers.h"

namespace muster {
namespace {

std::optional<SocketAddress> FromBytes(const std::string& bytes) {
  SocketAddress address;
  if (bytes.size() < sizeof(sockaddr_in) || bytes.size() > sizeof(address.storage)) return {};
  std::memcpy(&address.storage, bytes.data(), bytes.size());
  const sa_family_t family = address.storage.ss_family;
  address.length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if ((family != AF_INET && family != AF_INET6) || bytes.size() < address.length) return {};
  return address;
}

bool Equal(const SocketAddress& a, const SocketAddress& b) {
  return a.port() == b.port() && a.Host() == b.Host();
}

bool IsIp(const SocketAddress& address) {
  return address.storage.ss_family == AF_INET || address.storage.ss_family == AF_INET6;
}

}  // namespace

int UnpaceConnections(const SocketAddress& own, const SocketAddress& theirs) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir("/proc/self/fd"), closedir);
  if (directory == nullptr) return 0;
  int count = 0;
  while (const dirent* entry = readdir(directory.get())) {
    int fd = -1;
    if (!absl::SimpleAtoi(entry->d_name, &fd)) continue;
    const auto local = LocalAddress(fd);
    if (!local.ok() || !IsIp(*local)) continue;
    const auto remote = PeerAddress(fd);
    if (!remote.ok() || local->Host() != remote->Host()) continue;
    if (!Equal(*local, own) && !Equal(*remote, theirs)) continue;
    count += UsePlainCongestionControl(fd) ? 1 : 0;
  }
  return count;
}

void OfiConnections::Add(Rank peer, const std::string& own, const std::string& theirs) {
  const auto own_end = FromBytes(own);
  const auto their_end = FromBytes(theirs);
  if (!own_end.has_value() || !their_end.has_value() || own_end->Host() != their_end->Host()) {
    return;
  }
  ends_[peer] = {*own_end, *their_end};
}

void OfiConnections::Settle(Rank peer) {
  const auto found = ends_.find(peer);
  if (found == ends_.end()) return;
  UnpaceConnections(found->second.own, found->second.theirs);
  ends_.erase(found);
}

}  // namespace muster
