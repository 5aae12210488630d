#include "collectives/transport/control_links.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "collectives/transport/tcp_frame.h"

namespace muster {
namespace {

// A goodbye frame's text: the packets sent, in decimal; or this.
constexpr char kTaken[] = "taken";
constexpr uint64_t kInterruptMark = ~uint64_t{0};

}  // namespace

ControlLinks::ControlLinks(std::vector<UniqueFd> sockets)
    : links_(sockets.size()), interrupt_(MakeEventFd()), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  MUSTER_CHECK(epoll_.valid()) << "epoll_create1: " << std::strerror(errno);
  const auto add = [this](int fd, uint64_t data) {
    epoll_event event = {};
    event.events = EPOLLIN | EPOLLRDHUP;
    event.data.u64 = data;
    MUSTER_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) << std::strerror(errno);
  };
  add(interrupt_.get(), kInterruptMark);
  for (size_t r = 0; r < sockets.size(); ++r) {
    links_[r].socket = std::move(sockets[r]);
    if (links_[r].socket.valid()) add(links_[r].socket.get(), r);
  }
}

bool ControlLinks::Wait(absl::Duration timeout) {
  timespec limit = absl::ToTimespec(std::max(timeout, absl::ZeroDuration()));
  epoll_event events[8];
  const int count = epoll_pwait2(epoll_.get(), events, 8, &limit, nullptr);
  bool news = false;
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 == kInterruptMark) {
      DrainEventFd(interrupt_.get());
    } else {
      news = true;
    }
  }
  return news;
}

std::vector<ControlNews> ControlLinks::Read() {
  std::vector<ControlNews> news;
  for (Rank r = 0; r < static_cast<Rank>(links_.size()); ++r) ReadLink(r, &news);
  return news;
}

void ControlLinks::ReadLink(Rank peer, std::vector<ControlNews>* news) {
  Link& link = links_[static_cast<size_t>(peer)];
  while (link.socket.valid()) {
    char buffer[2048];
    const ssize_t got = recv(link.socket.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got < 0 && errno == EINTR) continue;
    ControlNews item;
    item.peer = peer;
    if (got <= 0) {
      item.reason = absl::UnavailableError(
          got == 0 ? "it closed its connection without saying goodbye"
                   : absl::StrCat("its connection broke: ", std::strerror(errno)));
      link.socket.Reset();  // also leaves the epoll
      news->push_back(std::move(item));
      return;
    }
    link.bytes.append(buffer, static_cast<size_t>(got));
    while (true) {
      const absl::StatusOr<std::optional<TcpControlFrame>> frame = TakeControlFrame(&link.bytes);
      if (frame.ok() && !frame->has_value()) break;
      item.kind = ControlNews::Kind::kClosed;
      if (!frame.ok()) {
        item.reason = absl::UnavailableError(absl::StrCat("it sent ", frame.status().message()));
        link.socket.Reset();
      } else if ((*frame)->kind == TcpControlFrame::Kind::kAbort) {
        item.kind = ControlNews::Kind::kAbort;
        item.reason = absl::Status((*frame)->code, (*frame)->text);
        item.culprit = (*frame)->culprit;
      } else if ((*frame)->text == kTaken) {
        item.kind = ControlNews::Kind::kTaken;
      } else if (absl::SimpleAtoi((*frame)->text, &item.packets)) {
        item.kind = ControlNews::Kind::kGoodbye;
      } else {
        item.reason = absl::UnavailableError("it said a goodbye that makes no sense");
        link.socket.Reset();
      }
      news->push_back(item);
      if (!link.socket.valid()) return;
    }
  }
}

void ControlLinks::Send(Rank peer, const std::string& frame) {
  const int fd = links_[static_cast<size_t>(peer)].socket.get();
  if (fd < 0) return;
  // Fits the empty buffer of a connection that carries next to nothing.
  [[maybe_unused]] const ssize_t sent =
      send(fd, frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void ControlLinks::SendGoodbye(Rank peer, uint32_t packets) {
  TcpControlFrame frame;
  frame.text = absl::StrCat(packets);
  Send(peer, EncodeControlFrame(frame));
}

void ControlLinks::SendTaken(Rank peer) {
  TcpControlFrame frame;
  frame.text = kTaken;
  Send(peer, EncodeControlFrame(frame));
}

void ControlLinks::SendAbort(Rank peer, const absl::Status& reason, std::optional<Rank> culprit) {
  TcpControlFrame frame;
  frame.kind = TcpControlFrame::Kind::kAbort;
  frame.code = reason.code();
  frame.culprit = culprit;
  frame.text = std::string(reason.message());
  Send(peer, EncodeControlFrame(frame));
}

}  // namespace muster
