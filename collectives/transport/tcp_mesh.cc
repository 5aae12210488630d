#include "collectives/transport/tcp_mesh.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "collectives/transport/culprit.h"
#include "collectives/transport/tcp_frame.h"

namespace muster {
namespace {

constexpr int64_t kReadBudgetBytes = 1 << 20;
// Messages up to this size share one channel, so that small ones are not spread over system calls.
constexpr size_t kSmallMessageBytes = 64 << 10;
// Of a connection, while several share the wire: how much the kernel takes beyond what it can send.
constexpr int kUnsentWhenShared = 128 << 10;
// So many large messages in a row with no other connection busy end that.
constexpr int kAloneBeforeUnshared = 64;
// Up to this many connections are tried directly; with more, epoll says which are ready.
constexpr size_t kDirectConnections = 4;
// epoll's user data: a connection's index, or one of these.
constexpr uint64_t kControlBit = uint64_t{1} << 32;
constexpr uint64_t kWakeMark = uint64_t{1} << 33;
constexpr uint64_t kAlsoMark = uint64_t{1} << 34;

}  // namespace

TcpMesh::TcpMesh(MeshSpec spec, std::vector<TcpPeerSockets> sockets)
    : spec_(std::move(spec)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      watch_epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(MakeEventFd()),
      watch_wake_(MakeEventFd()),
      shares_cores_(RanksShareCores(local_world_size())) {
  MUSTER_CHECK(epoll_.valid() && watch_epoll_.valid()) << "epoll_create1: " << std::strerror(errno);
  MUSTER_CHECK_EQ(sockets.size(), spec_.members.size());
  EpollControl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), EPOLLIN, kWakeMark);
  EpollControl(watch_epoll_.get(), EPOLL_CTL_ADD, watch_wake_.get(), EPOLLIN, kWakeMark);
  peers_.resize(sockets.size());
  for (size_t r = 0; r < sockets.size(); ++r) {
    Peer& peer = peers_[r];
    peer.rank = static_cast<Rank>(r);
    if (!sockets[r].control.valid()) continue;
    peer.control = std::move(sockets[r].control);
    peer.receives = std::make_unique<ReceiveTable>(spec_.options.limits);
    for (int epoll : {epoll_.get(), watch_epoll_.get()}) {
      EpollControl(epoll, EPOLL_CTL_ADD, peer.control.get(), EPOLLIN | EPOLLRDHUP, kControlBit | r);
    }
    for (UniqueFd& fd : sockets[r].data) {
      peer.channels.push_back(
          std::make_unique<TcpConnection>(std::move(fd), peer.receives.get(), &staging_));
      TcpConnection& connection = *peer.channels.back();
      connection.armed_events = EPOLLIN | EPOLLRDHUP;
      EpollControl(epoll_.get(), EPOLL_CTL_ADD, connection.fd(), connection.armed_events,
                   connections_.size());
      connections_.emplace_back(&peer, &connection);
    }
  }
}

TcpMesh::~TcpMesh() { Close(absl::OkStatus(), std::nullopt); }

TcpMesh::Peer& TcpMesh::PeerAt(Rank rank) {
  MUSTER_CHECK(rank >= 0 && rank < world_size() && peers_[rank].receives != nullptr)
      << "rank " << rank << " is no peer of rank " << spec_.rank;
  return peers_[rank];
}

void TcpMesh::PostSend(Rank rank, uint64_t tag, absl::Span<const std::byte> bytes, uint64_t token) {
  MUSTER_CHECK_LE(static_cast<int64_t>(bytes.size()), kMaxMessageBytes);
  MutexLock lock(&drive_mu_);
  if (failure_.has_value()) return;
  Peer& peer = PeerAt(rank);
  size_t channel = 0;
  if (bytes.size() > kSmallMessageBytes) channel = peer.next_channel++ % peer.channels.size();
  peer.channels[channel]->QueueSend(tag, bytes, token);
  if (bytes.size() < kSmallMessageBytes) return;
  if (absl::Status status = ShareWire(); !status.ok()) {
    failure_.Record(Annotate(status, DescribeMember(spec_, rank)), std::nullopt);
  }
}

absl::Status TcpMesh::ShareWire() {
  int busy = 0;
  for (const Peer& peer : peers_) {
    busy += std::any_of(peer.channels.begin(), peer.channels.end(),
                        [](const auto& channel) { return channel->has_sends(); });
  }
  sent_alone_ = busy > 1 ? 0 : sent_alone_ + 1;
  const bool shares = busy > 1 || (shares_wire_ && sent_alone_ < kAloneBeforeUnshared);
  if (std::exchange(shares_wire_, shares) == shares) return absl::OkStatus();
  for (const auto& [peer, connection] : connections_) {
    if (IsOnOwnHost(spec_, peer->rank)) continue;
    MUSTER_RETURN_IF_ERROR(LimitUnsent(connection->fd(), shares ? kUnsentWhenShared : 0));
  }
  return absl::OkStatus();
}

void TcpMesh::Post(Rank rank, const PendingReceive& receive) {
  MutexLock lock(&drive_mu_);
  if (failure_.has_value()) return;
  const absl::StatusOr<bool> served = PeerAt(rank).receives->Post(receive);
  if (!served.ok()) {
    failure_.Record(Annotate(served.status(), DescribeMember(spec_, rank)), std::nullopt);
  } else if (*served) {
    served_at_post_.push_back(receive.token);
  }
}

void TcpMesh::Expect(Rank peer, int delta) {
  MutexLock lock(&drive_mu_);
  PeerAt(peer).receives->Expect(delta);
}

absl::Status TcpMesh::ReadControl(Peer& peer) {
  while (peer.control.valid()) {
    char buffer[2048];
    const ssize_t got = recv(peer.control.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return absl::OkStatus();
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      const std::string how = got == 0
                                  ? "it closed its connection without saying goodbye"
                                  : absl::StrCat("its connection broke: ", std::strerror(errno));
      peer.control.Reset();  // also leaves both epolls
      return peer.departed ? absl::OkStatus() : PeerIsGone(spec_, peer.rank, how);
    }
    peer.control_bytes.append(buffer, static_cast<size_t>(got));
    while (true) {
      absl::StatusOr<std::optional<TcpControlFrame>> frame = TakeControlFrame(&peer.control_bytes);
      if (!frame.ok())
        return PeerIsGone(spec_, peer.rank, absl::StrCat("it sent ", frame.status().message()));
      if (!frame->has_value()) break;
      if ((*frame)->kind == TcpControlFrame::Kind::kAbort) {
        return WithCulprit(absl::Status((*frame)->code, absl::StrCat("rank ", peer.rank,
                                                                     " aborted: ", (*frame)->text)),
                           (*frame)->culprit);
      }
      peer.departed = true;
    }
  }
  return absl::OkStatus();
}

absl::Status TcpMesh::CheckEnded(Peer& peer) {
  bool all_ended = true;
  bool needed = peer.receives->due() > 0;
  for (const auto& channel : peer.channels) {
    all_ended = all_ended && channel->at_end();
    if (channel->at_end() && (channel->mid_message() || channel->has_sends())) {
      needed = true;
      all_ended = true;
      break;
    }
  }
  if (!all_ended || !needed) return absl::OkStatus();
  // Its control connection may say why.
  MUSTER_RETURN_IF_ERROR(ReadControl(peer));
  return PeerIsGone(
      spec_, peer.rank,
      peer.departed ? "it left while more was expected of it" : "it closed its connection");
}

absl::Status TcpMesh::ProgressConnection(Peer& peer, TcpConnection& connection, bool read,
                                         std::vector<uint64_t>* completed, bool* more) {
  *more = false;
  absl::Status status;
  if (connection.has_sends()) status = connection.Flush(completed);
  if (status.ok() && read) status = connection.Read(kReadBudgetBytes, completed, more);
  if (status.ok() && !connection.at_end()) return status;
  if (!status.ok()) {
    MUSTER_RETURN_IF_ERROR(ReadControl(peer));
    return PeerIsGone(spec_, peer.rank, status.message());
  }
  if (connection.armed_events != 0) {
    connection.armed_events = 0;
    EpollControl(epoll_.get(), EPOLL_CTL_DEL, connection.fd(), 0, 0);
  }
  return CheckEnded(peer);
}

absl::Status TcpMesh::Progress(std::vector<uint64_t>* completed, bool* more) {
  *more = false;
  completed->insert(completed->end(), served_at_post_.begin(), served_at_post_.end());
  served_at_post_.clear();
  const bool direct = connections_.size() <= kDirectConnections;
  for (auto& [peer, connection] : connections_) {
    const bool holds = connection->held_back() || connection->paused();
    if (!direct && !connection->has_sends() && !holds && !connection->at_end()) continue;
    bool more_here = false;
    MUSTER_RETURN_IF_ERROR(
        ProgressConnection(*peer, *connection, direct || holds, completed, &more_here));
    *more = *more || more_here;
  }
  return absl::OkStatus();
}

absl::Status TcpMesh::Block(int timeout_ms, std::vector<uint64_t>* completed) {
  for (size_t i = 0; i < connections_.size(); ++i) {
    TcpConnection& connection = *connections_[i].second;
    if (connection.at_end()) continue;
    // What is held back must not wake us; if the peer dies its control connection says so.
    uint32_t events = connection.held_back() ? 0 : EPOLLIN | EPOLLRDHUP;
    if (connection.has_sends()) events |= EPOLLOUT;
    if (events == connection.armed_events) continue;
    connection.armed_events = events;
    EpollControl(epoll_.get(), EPOLL_CTL_MOD, connection.fd(), events, i);
  }
  epoll_event events[64];
  const int count = epoll_wait(epoll_.get(), events, 64, timeout_ms);
  for (int i = 0; i < count; ++i) {
    const uint64_t data = events[i].data.u64;
    if (data == kWakeMark) {
      DrainEventFd(wake_.get());
    } else if ((data & kControlBit) != 0) {
      MUSTER_RETURN_IF_ERROR(ReadControl(peers_[data & ~kControlBit]));
    } else {
      auto& [peer, connection] = connections_[data];
      bool more = false;
      MUSTER_RETURN_IF_ERROR(ProgressConnection(*peer, *connection, true, completed, &more));
    }
  }
  return absl::OkStatus();
}

absl::Status TcpMesh::Poll(absl::Time deadline, absl::Duration spin,
                           std::vector<uint64_t>* completed) {
  const size_t before = completed->size();
  absl::Time spin_until = absl::InfinitePast();
  for (int round = 0;; ++round) {
    MutexLock lock(&drive_mu_);
    if (failure_.has_value()) return failure_.status();
    bool more = false;
    absl::Status status = Progress(completed, &more);
    if (!status.ok()) {
      failure_.Record(std::move(status), std::nullopt);
      return failure_.status();
    }
    if (completed->size() > before) return absl::OkStatus();
    if (wake_pending_.exchange(false)) return failure_.so_far();
    if (more) continue;
    const absl::Time now = absl::Now();
    if (round == 0) spin_until = now + spin;
    const bool last = now >= deadline;
    const bool spinning = !last && now < spin_until;
    // While spinning, epoll (control connections, large meshes) is asked now and then only.
    if (spinning && round % 8 != 7 && connections_.size() <= kDirectConnections) continue;
    const auto look = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      status = Block(0, completed);
      return !status.ok() || completed->size() > before || wake_pending_.load();
    };
    const bool gives_way = shares_cores_ && !last && !spinning;
    if (!gives_way || !give_way_.Until(deadline, GiveWay::kLongest, look)) {
      status = Block(last || spinning ? 0 : PollTimeoutMs(deadline), completed);
    }
    if (!status.ok()) {
      failure_.Record(std::move(status), std::nullopt);
      return failure_.status();
    }
    if (last || completed->size() > before) return absl::OkStatus();
  }
}

void TcpMesh::Wake() {
  wake_pending_ = true;
  SignalEventFd(wake_.get());
}

void TcpMesh::Watch(absl::Time deadline) {
  if (failure_.has_value()) return;
  epoll_event event;
  if (epoll_wait(watch_epoll_.get(), &event, 1, PollTimeoutMs(deadline)) == 1 &&
      event.data.u64 == kWakeMark) {
    DrainEventFd(watch_wake_.get());
  }
}

void TcpMesh::WatchAlso(int fd) {
  EpollControl(watch_epoll_.get(), EPOLL_CTL_ADD, fd, EPOLLIN, kAlsoMark);
}

void TcpMesh::WakeWatcher() { SignalEventFd(watch_wake_.get()); }

void TcpMesh::Close(const absl::Status& reason, std::optional<Rank> culprit) {
  failure_.Record(reason.ok() ? absl::CancelledError("the transport is closed") : reason, culprit);
  Wake();
  WakeWatcher();
  MutexLock lock(&drive_mu_);  // Waits for the driver, who sees the failure and leaves.
  if (closed_) return;
  closed_ = true;
  TcpControlFrame frame;
  if (!reason.ok()) {
    frame.kind = TcpControlFrame::Kind::kAbort;
    frame.code = reason.code();
    frame.culprit = culprit;
    frame.text = std::string(reason.message());
  }
  const std::string bytes = EncodeControlFrame(frame);
  for (Peer& peer : peers_) {
    if (!peer.control.valid()) continue;
    // Fits the empty buffer of a connection that carries nothing else; a dead peer needs no word.
    [[maybe_unused]] const ssize_t sent =
        send(peer.control.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  connections_.clear();
  for (Peer& peer : peers_) {
    peer.channels.clear();
    peer.control.Reset();
  }
}

}  // namespace muster
