#include "collectives/transport/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace muster {
namespace {

constexpr char kNoFreePort[] =
    " (no port is free here; close what holds them, or widen net.ipv4.ip_local_port_range)";

absl::Status SetOption(int fd, int level, int option, int value, absl::string_view name) {
  if (setsockopt(fd, level, option, &value, sizeof(value)) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot set ", name, " to ", value));
  }
  return absl::OkStatus();
}

// At least one address. With AI_NUMERICHOST in `flags`, without a look-up.
absl::StatusOr<std::vector<SocketAddress>> Resolve(const std::string& host, const std::string& port,
                                                   int flags) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &list);
  if (error != 0) {
    return absl::InvalidArgumentError(absl::StrCat("'", host, "': ", gai_strerror(error)));
  }
  auto free_list = absl::MakeCleanup([list] { freeaddrinfo(list); });
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    SocketAddress& address = addresses.emplace_back();
    address.length = entry->ai_addrlen;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
  }
  return addresses;
}

absl::StatusOr<SocketAddress> InterfaceAddress(const std::string& name, uint16_t port) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return ErrnoStatus(errno, "cannot list network interfaces");
  auto free_list = absl::MakeCleanup([list] { freeifaddrs(list); });
  std::set<std::string> known;
  for (int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
      if (name != entry->ifa_name) {
        known.insert(entry->ifa_name);
        continue;
      }
      SocketAddress address;
      address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      std::memcpy(&address.storage, entry->ifa_addr, address.length);
      address.set_port(port);
      return address;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", name,
                   "' is neither an IP address nor a network interface "
                   "with one; interfaces here: ",
                   absl::StrJoin(known, ", ")));
}

// Whether what is sent there stays on this host: the source that the kernel takes is the
// destination itself. Sends nothing.
bool IsOnThisHost(const SocketAddress& address) {
  const UniqueFd probe(socket(address.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe.valid() || connect(probe.get(), reinterpret_cast<const sockaddr*>(&address.storage),
                                address.length) != 0) {
    return false;
  }
  const auto source = LocalAddress(probe.get());
  return source.ok() && source->Host() == address.Host();
}

absl::Status SetCongestionControl(int fd, absl::string_view name) {
  if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), name.size()) == 0) {
    return absl::OkStatus();
  }
  return ErrnoStatus(errno, absl::StrCat("cannot set TCP_CONGESTION to ", name));
}

// Every kernel has it and, unless an administrator forbids it, lets everybody use it; where it is
// refused, connections within the host are only slower.
constexpr absl::string_view kPlain = "reno";

}  // namespace

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    Reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void UniqueFd::Reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

std::string SocketAddress::Host() const {
  char host[NI_MAXHOST] = "?";
  getnameinfo(reinterpret_cast<const sockaddr*>(&storage), length, host, sizeof(host), nullptr, 0,
              NI_NUMERICHOST);
  return host;
}

uint16_t SocketAddress::port() const {
  return storage.ss_family == AF_INET6
             ? ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port)
             : ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

void SocketAddress::set_port(uint16_t port) {
  if (storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(&storage)->sin_port = htons(port);
  }
}

bool SocketAddress::IsUnspecified() const {
  if (storage.ss_family == AF_INET6) {
    return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr);
  }
  return reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr.s_addr == INADDR_ANY;
}

bool SocketAddress::IsLoopback() const {
  if (storage.ss_family == AF_INET6) {
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr);
  }
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage);
  return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

std::string SocketAddress::ToString() const {
  const std::string host = Host();
  return storage.ss_family == AF_INET6 ? absl::StrCat("[", host, "]:", port())
                                       : absl::StrCat(host, ":", port());
}

absl::StatusOr<SocketAddress> ResolveBindHost(absl::string_view host, uint16_t port) {
  const auto numeric = Resolve(std::string(host), absl::StrCat(port), AI_NUMERICHOST | AI_PASSIVE);
  if (numeric.ok()) return numeric->front();
  return InterfaceAddress(std::string(host), port);
}

absl::StatusOr<std::vector<SocketAddress>> LookUpHost(absl::string_view name) {
  return Resolve(std::string(name), "0", 0);
}

absl::StatusOr<SocketAddress> ParseAddress(absl::string_view text) {
  const auto malformed = [text] {
    return absl::InvalidArgumentError(
        absl::StrCat("'", TextForPeople(text, text.size()),
                     "' is no address; expected host:port or [IPv6]:port"));
  };
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos || colon == 0) return malformed();
  absl::string_view host = text.substr(0, colon);
  uint32_t port = 0;
  if (!absl::SimpleAtoi(text.substr(colon + 1), &port) || port == 0 || port > 65535) {
    return malformed();
  }
  if (host.front() == '[') {
    if (host.size() < 3 || host.back() != ']') return malformed();
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != absl::string_view::npos) {
    return malformed();
  }
  const auto addresses = Resolve(std::string(host), absl::StrCat(port), 0);
  if (!addresses.ok()) return Annotate(addresses.status(), absl::StrCat("address ", text));
  return addresses->front();
}

absl::Status ErrnoStatus(int error, absl::string_view text) {
  const std::string message = absl::StrCat(text, ": ", std::strerror(error));
  switch (error) {
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(message);
    case EINVAL:
    case EAFNOSUPPORT:
      return absl::InvalidArgumentError(message);
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::UnavailableError(message);
  }
}

absl::StatusOr<UniqueFd> ListenOn(const SocketAddress& address) {
  UniqueFd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "cannot make a socket");
  MUSTER_RETURN_IF_ERROR(SetOption(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR"));
  // What it accepts begins with this.
  (void)UsePlainCongestionControl(fd.get());
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0) {
    const char* hint = "";
    if (errno == EADDRINUSE) {
      hint = address.port() == 0 ? kNoFreePort : " (another process has the port; choose another)";
    }
    return ErrnoStatus(errno, absl::StrCat("cannot listen on ", address.ToString(), hint));
  }
  return fd;
}

absl::StatusOr<UniqueFd> AcceptFrom(int listening) {
  SocketAddress peer;
  peer.length = sizeof(peer.storage);
  UniqueFd fd(accept4(listening, reinterpret_cast<sockaddr*>(&peer.storage), &peer.length,
                      SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "cannot accept a connection");
  MUSTER_ASSIGN_OR_RETURN(const SocketAddress own, LocalAddress(fd.get()));
  if (own.Host() == peer.Host()) return fd;
  MUSTER_ASSIGN_OR_RETURN(const std::string inherited, CongestionControl(fd.get()));
  if (inherited != kPlain) return fd;  // The route has one of its own.
  const UniqueFd fresh(socket(own.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fresh.valid()) return ErrnoStatus(errno, "cannot make a socket");
  MUSTER_ASSIGN_OR_RETURN(const std::string usual, CongestionControl(fresh.get()));
  MUSTER_RETURN_IF_ERROR(SetCongestionControl(fd.get(), usual));
  return fd;
}

absl::StatusOr<std::string> CongestionControl(int fd) {
  char name[16] = {};  // TCP_CA_NAME_MAX
  socklen_t length = sizeof(name);
  if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0) {
    return ErrnoStatus(errno, "cannot read TCP_CONGESTION");
  }
  return std::string(name, strnlen(name, sizeof(name)));
}

bool UsePlainCongestionControl(int fd) { return SetCongestionControl(fd, kPlain).ok(); }

absl::StatusOr<SocketAddress> LocalAddress(int fd) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    return ErrnoStatus(errno, "getsockname");
  }
  return address;
}

absl::StatusOr<SocketAddress> PeerAddress(int fd) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    return ErrnoStatus(errno, "getpeername");
  }
  return address;
}

absl::StatusOr<UniqueFd> StartConnect(const SocketAddress& address) {
  UniqueFd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "cannot make a socket");
  if (IsOnThisHost(address)) (void)UsePlainCongestionControl(fd.get());
  const int result =
      connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length);
  if (result != 0 && errno != EINPROGRESS) {
    return ErrnoStatus(errno, absl::StrCat("cannot connect to ", address.ToString(),
                                           errno == EADDRNOTAVAIL ? kNoFreePort : ""));
  }
  return fd;
}

absl::Status ConfigureStream(int fd, absl::Duration peer_timeout, int buffer_bytes) {
  const int timeout_ms =
      static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(peer_timeout), 1000, 3600000));
  const int probe_seconds = std::max(1, timeout_ms / 4000);
  MUSTER_RETURN_IF_ERROR(SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY"));
  MUSTER_RETURN_IF_ERROR(SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE"));
  MUSTER_RETURN_IF_ERROR(SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, probe_seconds, "TCP_KEEPIDLE"));
  MUSTER_RETURN_IF_ERROR(SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, probe_seconds, "TCP_KEEPINTVL"));
  MUSTER_RETURN_IF_ERROR(SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 3, "TCP_KEEPCNT"));
  MUSTER_RETURN_IF_ERROR(
      SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, timeout_ms, "TCP_USER_TIMEOUT"));
  if (buffer_bytes > 0) {
    MUSTER_RETURN_IF_ERROR(SetOption(fd, SOL_SOCKET, SO_SNDBUF, buffer_bytes, "SO_SNDBUF"));
    MUSTER_RETURN_IF_ERROR(SetOption(fd, SOL_SOCKET, SO_RCVBUF, buffer_bytes, "SO_RCVBUF"));
  }
  return absl::OkStatus();
}

absl::Status LimitUnsent(int fd, int bytes) {
  return SetOption(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, bytes, "TCP_NOTSENT_LOWAT");
}

UniqueFd MakeEventFd() {
  UniqueFd fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  MUSTER_CHECK(fd.valid()) << "eventfd: " << std::strerror(errno);
  return fd;
}

void EpollControl(int epoll, int operation, int fd, uint32_t events, uint64_t data) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = data;
  MUSTER_CHECK(epoll_ctl(epoll, operation, fd, &event) == 0 || errno == ENOENT)
      << "epoll_ctl: " << std::strerror(errno);
}

void SignalEventFd(int fd) {
  const uint64_t one = 1;
  // EAGAIN: the counter is full, so the reader is woken anyway.
  [[maybe_unused]] const ssize_t written = write(fd, &one, sizeof(one));
}

void DrainEventFd(int fd) {
  uint64_t count;
  [[maybe_unused]] const ssize_t got = read(fd, &count, sizeof(count));
}

int PollTimeoutMs(absl::Time deadline) {
  const absl::Duration left = deadline - absl::Now();
  if (left <= absl::ZeroDuration()) return 0;
  return static_cast<int>(std::min<int64_t>(
      absl::ToInt64Milliseconds(left + absl::Microseconds(999)), int64_t{3600} * 1000));
}

}  // namespace muster
