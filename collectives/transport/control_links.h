// The control connections of a mesh whose data travels by other means than TCP: one to each peer,
// kept from the handshake. A killed peer is known when the kernel closes its connection.
//
// Goodbye carries the number of packets that the leaving rank has sent to the peer, so that the
// peer knows when it has them all, although these travel another way; the peer then answers
// `taken`.
//
// Wait and Interrupt may be called from any thread at any time; the rest by one thread at a time.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_CONTROL_LINKS_H_
#define MUSTER_COLLECTIVES_TRANSPORT_CONTROL_LINKS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "collectives/transport/socket.h"

namespace muster {

struct ControlNews {
  enum class Kind { kGoodbye, kTaken, kAbort, kClosed };
  Rank peer = -1;
  Kind kind = Kind::kClosed;
  uint32_t packets = 0;         // kGoodbye
  absl::Status reason;          // kAbort: the peer's; kClosed: how the connection ended
  std::optional<Rank> culprit;  // kAbort
};

class ControlLinks {
 public:
  // By rank; invalid for this one.
  explicit ControlLinks(std::vector<UniqueFd> sockets);

  // Waits up to `timeout` for news or Interrupt. True: there may be news, take it with Read.
  bool Wait(absl::Duration timeout);
  // Readable while Wait would return.
  int news_fd() const { return epoll_.get(); }
  // Ends Wait, now or next time.
  void Interrupt() { SignalEventFd(interrupt_.get()); }
  // All news there are. A connection that has ended is dropped after its last news.
  std::vector<ControlNews> Read();

  bool connected(Rank peer) const { return links_[static_cast<size_t>(peer)].socket.valid(); }
  // A dead peer needs no word: errors are ignored.
  void SendGoodbye(Rank peer, uint32_t packets);
  void SendTaken(Rank peer);
  // Closes all connections. Requires: nobody in Wait.
  void Disconnect() {
    for (Link& link : links_) link.socket.Reset();
  }
  void SendAbort(Rank peer, const absl::Status& reason, std::optional<Rank> culprit);

 private:
  struct Link {
    UniqueFd socket;
    std::string bytes;  // received, no whole frame yet
  };
  void ReadLink(Rank peer, std::vector<ControlNews>* news);
  void Send(Rank peer, const std::string& frame);

  std::vector<Link> links_;
  UniqueFd interrupt_;
  UniqueFd epoll_;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_CONTROL_LINKS_H_
