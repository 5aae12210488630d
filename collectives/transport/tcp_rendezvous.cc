#include "collectives/transport/tcp_rendezvous.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace muster {
namespace {

// Tokens whose floor is remembered. A process serves one job at a time, and hellos of a job long
// gone can only be parked until they time out.
constexpr size_t kMaxFloors = 64;
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

absl::Status TcpMeshRendezvous::Begin(TcpMeshPlan plan, int notify_fd) {
  MutexLock lock(&mu_);
  if (plan_.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat("cannot form the mesh of epoch ", plan.epoch,
                                                      " while that of epoch ", plan_->epoch,
                                                      " is being formed; end that first"));
  }
  if (plan.epoch <= cancelled_through_) {
    return absl::CancelledError(absl::StrCat("epoch ", plan.epoch, " was given up"));
  }
  const Epoch floor = FloorOf(plan.token_hash);
  if (plan.epoch <= floor) {
    return absl::FailedPreconditionError(absl::StrCat("cannot form the mesh of epoch ", plan.epoch,
                                                      ": this process is past epoch ", floor));
  }
  RaiseFloor(plan.token_hash, plan.epoch - 1);
  plan_ = std::move(plan);
  notify_fd_ = notify_fd;
  cancelled_ = false;
  SortParked();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TcpArrival>> TcpMeshRendezvous::Take() {
  MutexLock lock(&mu_);
  if (cancelled_) {
    return absl::CancelledError(absl::StrCat("epoch ", plan_->epoch, " was given up"));
  }
  return std::exchange(arrivals_, {});
}

void TcpMeshRendezvous::End() {
  MutexLock lock(&mu_);
  MUSTER_CHECK(plan_.has_value());
  RaiseFloor(plan_->token_hash, plan_->epoch);
  plan_.reset();
  notify_fd_ = -1;
  arrivals_.clear();
  welcomed_.clear();
  SortParked();
}

void TcpMeshRendezvous::CancelThrough(Epoch epoch) {
  MutexLock lock(&mu_);
  cancelled_through_ = std::max(cancelled_through_, epoch);
  if (plan_.has_value() && plan_->epoch <= epoch) {
    cancelled_ = true;
    SignalEventFd(notify_fd_);
  }
  SortParked();
}

Epoch TcpMeshRendezvous::FloorOf(uint64_t token_hash) const {
  for (const auto& [token, epoch] : floors_) {
    if (token == token_hash) return std::max(epoch, cancelled_through_);
  }
  return cancelled_through_;
}

void TcpMeshRendezvous::RaiseFloor(uint64_t token_hash, Epoch epoch) {
  for (auto& [token, floor] : floors_) {
    if (token == token_hash) {
      floor = std::max(floor, epoch);
      return;
    }
  }
  floors_.emplace_back(token_hash, epoch);
  if (floors_.size() > kMaxFloors) floors_.pop_front();
}

void TcpMeshRendezvous::SortParked() {
  std::deque<Parked> waiting = std::exchange(parked_, {});
  for (Parked& parked : waiting) {
    const bool fits = plan_.has_value() && !cancelled_ &&
                      plan_->token_hash == parked.hello.token_hash &&
                      parked.hello.epoch == plan_->epoch;
    if (HungUp(parked.fd.get())) continue;
    if (fits || parked.hello.epoch <= FloorOf(parked.hello.token_hash)) {
      Settle(std::move(parked.fd), parked.hello);
    } else {
      parked_.push_back(std::move(parked));
    }
  }
}

void TcpMeshRendezvous::Answer(const UniqueFd& fd, TcpVerdict verdict, absl::string_view why) {
  TcpAnswer answer;
  answer.verdict = verdict;
  if (plan_.has_value()) {
    answer.epoch = plan_->epoch;
    answer.incarnation = plan_->incarnations[plan_->rank];
  }
  const std::string bytes = EncodeAnswer(answer, why);
  // A fresh connection's send buffer takes this whole; if the dialer is gone, its end says so
  // later.
  [[maybe_unused]] const ssize_t sent =
      send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void TcpMeshRendezvous::Settle(UniqueFd fd, const TcpHello& hello) {
  const Epoch floor = FloorOf(hello.token_hash);
  if (hello.epoch <= floor) {
    Answer(
        fd, TcpVerdict::kStaleEpoch,
        absl::StrCat("epoch ", hello.epoch, " is over here; this process is past epoch ", floor));
    return;
  }
  const TcpExpectation expected = {plan_->token_hash, plan_->epoch, plan_->rank, plan_->channels,
                                   plan_->incarnations};
  std::string why;
  TcpVerdict verdict = JudgeHello(hello, expected, &why);
  const std::pair<Rank, int> key(hello.from_rank, hello.channel);
  if (verdict == TcpVerdict::kWelcome &&
      std::find(welcomed_.begin(), welcomed_.end(), key) != welcomed_.end()) {
    verdict = TcpVerdict::kDuplicate;
    why = absl::StrCat("channel ", hello.channel, " of rank ", hello.from_rank,
                       " is connected already");
  }
  Answer(fd, verdict, why);
  if (verdict != TcpVerdict::kWelcome) return;
  welcomed_.push_back(key);
  arrivals_.push_back({std::move(fd), hello.from_rank, hello.channel});
  SignalEventFd(notify_fd_);
}

void TcpMeshRendezvous::Admit(UniqueFd fd, const TcpHello& hello) {
  MutexLock lock(&mu_);
  const bool ours = plan_.has_value() && !cancelled_ && plan_->token_hash == hello.token_hash &&
                    plan_->epoch == hello.epoch;
  if (ours || hello.epoch <= FloorOf(hello.token_hash)) {
    Settle(std::move(fd), hello);
  } else if (static_cast<int>(parked_.size()) >= options_.max_parked) {
    Answer(fd, TcpVerdict::kBusy,
           absl::StrCat(parked_.size(), " connections for epochs to come are waiting already"));
  } else {
    parked_.push_back({std::move(fd), hello, absl::Now() + options_.park_timeout});
  }
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
