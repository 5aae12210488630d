// Small helpers around sockets: owned descriptors, addresses, options. Linux.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_SOCKET_H_
#define MUSTER_COLLECTIVES_TRANSPORT_SOCKET_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace muster {

// Owns a file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd() { Reset(); }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Reset();

 private:
  int fd_ = -1;
};

// An IPv4 or IPv6 address with port.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;
  // "1.2.3.4:5" or "[::1]:5".
  std::string ToString() const;
  // Without the port and brackets.
  std::string Host() const;
  uint16_t port() const;
  void set_port(uint16_t port);
  // 0.0.0.0 or ::.
  bool IsUnspecified() const;
  // 127.0.0.0/8 or ::1.
  bool IsLoopback() const;
};

// From a literal address ("10.0.0.1", "::1", "fe80::1%eth0") or the name of a network interface.
// INVALID_ARGUMENT names what it was.
absl::StatusOr<SocketAddress> ResolveBindHost(absl::string_view host, uint16_t port);

// All addresses that a host name stands for, with port 0. INVALID_ARGUMENT says why there are none.
absl::StatusOr<std::vector<SocketAddress>> LookUpHost(absl::string_view name);

// From "1.2.3.4:5", "[::1]:5" or "name:5" (looked up).
absl::StatusOr<SocketAddress> ParseAddress(absl::string_view text);

// "text: strerror(error)", with the code that says best what to do.
absl::Status ErrnoStatus(int error, absl::string_view text);

// Connections within this host lose nothing and need no pacing, whose timers take a fifth of their
// speed where the system's congestion control is bbr: they use reno. That must be settled before
// the connection stands, since pacing, once begun, outlasts a change. (Where it comes late, reno's
// pace, up to twice its window in a round trip, is still above bbr's.)

// A non-blocking, close-on-exec stream socket that listens there, for AcceptFrom.
absl::StatusOr<UniqueFd> ListenOn(const SocketAddress& address);
// A connection, non-blocking and close-on-exec. UNAVAILABLE: none is waiting, or it broke.
absl::StatusOr<UniqueFd> AcceptFrom(int listening);
absl::StatusOr<SocketAddress> LocalAddress(int fd);
absl::StatusOr<SocketAddress> PeerAddress(int fd);

// A non-blocking, close-on-exec socket whose connect to `address` has begun.
absl::StatusOr<UniqueFd> StartConnect(const SocketAddress& address);
// By name, of a stream socket.
absl::StatusOr<std::string> CongestionControl(int fd);
// Makes it "reno". False: it is no TCP socket, or an administrator forbids it.
bool UsePlainCongestionControl(int fd);

// TCP_NODELAY, keepalive and TCP_USER_TIMEOUT so that a silent peer breaks the connection after
// about `peer_timeout`, and kernel buffers where buffer_bytes > 0.
absl::Status ConfigureStream(int fd, absl::Duration peer_timeout, int buffer_bytes);

// No more than about so many bytes wait in the kernel to be sent; 0: as many as it has room for.
absl::Status LimitUnsent(int fd, int bytes);

// epoll_ctl, of a descriptor that is open; one that is not in the epoll may be changed or removed.
void EpollControl(int epoll, int operation, int fd, uint32_t events, uint64_t data);

// A non-blocking eventfd.
UniqueFd MakeEventFd();
void SignalEventFd(int fd);
void DrainEventFd(int fd);

// Milliseconds until `deadline` for poll and epoll_wait: rounded up, 0 when past, at most one hour.
int PollTimeoutMs(absl::Time deadline);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_SOCKET_H_
