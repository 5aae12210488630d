#include "collectives/transport/tcp_rendezvous.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace muster {
namespace {

constexpr absl::Duration kAcceptBackoff = absl::Milliseconds(100);

// The dialer has hung up meanwhile.
bool HungUp(int fd) {
  char byte;
  const ssize_t got = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
}

}  // namespace

TcpMeshRendezvous::TcpMeshRendezvous(UniqueFd listening, const TcpListenerOptions& options)
    : options_(options),
      listening_(std::move(listening)),
      wake_(MakeEventFd()),
      thread_([this] { Serve(); }) {}

TcpMeshRendezvous::~TcpMeshRendezvous() {
  stopping_ = true;
  SignalEventFd(wake_.get());
  thread_.join();
}

absl::Status TcpMeshRendezvous::Begin(MeshPlan plan, int notify_fd) {
  MutexLock lock(&mu_);
  MUSTER_RETURN_IF_ERROR(admission_.Begin(std::move(plan)));
  notify_fd_ = notify_fd;
  SortParked();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TcpArrival>> TcpMeshRendezvous::Take() {
  MutexLock lock(&mu_);
  MUSTER_RETURN_IF_ERROR(admission_.status());
  return std::exchange(arrivals_, {});
}

void TcpMeshRendezvous::End() {
  MutexLock lock(&mu_);
  admission_.End();
  notify_fd_ = -1;
  arrivals_.clear();
  SortParked();
}

void TcpMeshRendezvous::CancelThrough(Epoch epoch) {
  MutexLock lock(&mu_);
  if (admission_.CancelThrough(epoch)) SignalEventFd(notify_fd_);
  SortParked();
}

void TcpMeshRendezvous::SortParked() {
  for (Parked& parked : std::exchange(parked_, {})) {
    if (!HungUp(parked.fd.get())) Settle(std::move(parked.fd), parked.hello, parked.deadline);
  }
}

void TcpMeshRendezvous::Answer(const UniqueFd& fd, TcpVerdict verdict, absl::string_view why) {
  TcpAnswer answer;
  answer.verdict = verdict;
  if (const MeshPlan* plan = admission_.plan()) {
    answer.epoch = plan->epoch;
    answer.incarnation = plan->incarnations[plan->rank];
  }
  const std::string bytes = EncodeAnswer(answer, why);
  // A fresh connection's send buffer takes this whole; if the dialer is gone, its end says so
  // later.
  [[maybe_unused]] const ssize_t sent =
      send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void TcpMeshRendezvous::Settle(UniqueFd fd, const TcpHello& hello, absl::Time park_until) {
  std::string why;
  const std::optional<TcpVerdict> verdict = admission_.Judge(hello, &why);
  if (verdict.has_value()) {
    Answer(fd, *verdict, why);
    if (*verdict != TcpVerdict::kWelcome) return;
    arrivals_.push_back({std::move(fd), hello.from_rank, hello.channel});
    SignalEventFd(notify_fd_);
  } else if (static_cast<int>(parked_.size()) >= options_.max_parked) {
    Answer(fd, TcpVerdict::kBusy,
           absl::StrCat(parked_.size(), " connections for epochs to come are waiting already"));
  } else {
    parked_.push_back({std::move(fd), hello, park_until});
  }
}

void TcpMeshRendezvous::Admit(UniqueFd fd, const TcpHello& hello) {
  MutexLock lock(&mu_);
  Settle(std::move(fd), hello, absl::Now() + options_.park_timeout);
}

bool TcpMeshRendezvous::Advance(Handshake& handshake) {
  const ssize_t got = recv(handshake.fd.get(), handshake.bytes.data() + handshake.got,
                           handshake.bytes.size() - handshake.got, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return true;
  if (got <= 0) return false;
  handshake.got += static_cast<size_t>(got);
  if (handshake.got < handshake.bytes.size()) return true;
  const absl::StatusOr<TcpHello> hello = DecodeHello(handshake.bytes);
  if (hello.ok()) {
    Admit(std::move(handshake.fd), *hello);
  } else if (absl::IsFailedPrecondition(hello.status())) {
    MutexLock lock(&mu_);
    Answer(handshake.fd, TcpVerdict::kVersion,
           absl::StrCat("unknown ", hello.status().message(), " here"));
  }  // Else no peer of ours: not worth an answer.
  return false;
}

void TcpMeshRendezvous::Accept() {
  // Bounded, so that a flood of connections does not starve the handshakes.
  for (int i = 0; i < 64; ++i) {
    absl::StatusOr<UniqueFd> fd = AcceptFrom(listening_.get());
    if (!fd.ok()) {
      accept_failing_ = absl::IsResourceExhausted(fd.status());
      return;
    }
    if (static_cast<int>(handshakes_.size()) >= options_.max_handshakes) {
      handshakes_.erase(handshakes_.begin());
    }
    handshakes_.push_back({*std::move(fd), {}, 0, absl::Now() + options_.handshake_timeout});
  }
}

absl::Time TcpMeshRendezvous::DropExpired(absl::Time now) {
  absl::Time next = absl::InfiniteFuture();
  const auto expired = [now, &next](const auto& entry) {
    if (entry.deadline <= now) return true;
    next = std::min(next, entry.deadline);
    return false;
  };
  handshakes_.erase(std::remove_if(handshakes_.begin(), handshakes_.end(), expired),
                    handshakes_.end());
  MutexLock lock(&mu_);
  parked_.erase(std::remove_if(parked_.begin(), parked_.end(), expired), parked_.end());
  return next;
}

void TcpMeshRendezvous::Serve() {
  while (!stopping_) {
    absl::Time next = DropExpired(absl::Now());
    std::vector<pollfd> polled;
    polled.push_back({wake_.get(), POLLIN, 0});
    polled.push_back({accept_failing_ ? -1 : listening_.get(), POLLIN, 0});
    for (const Handshake& handshake : handshakes_) {
      polled.push_back({handshake.fd.get(), POLLIN, 0});
    }
    if (accept_failing_) next = std::min(next, absl::Now() + kAcceptBackoff);
    // What is parked meanwhile has a deadline later than a minute off or is looked at next time
    // round.
    next = std::min(next, absl::Now() + absl::Seconds(1));
    accept_failing_ = false;
    if (poll(polled.data(), polled.size(), PollTimeoutMs(next)) <= 0) continue;
    if (polled[0].revents != 0) DrainEventFd(wake_.get());
    for (size_t i = handshakes_.size(); i-- > 0;) {
      if (polled[i + 2].revents != 0 && !Advance(handshakes_[i])) {
        handshakes_.erase(handshakes_.begin() + static_cast<ptrdiff_t>(i));
      }
    }
    if (polled[1].revents != 0) Accept();
  }
}

}  // namespace muster
