#include "collectives/transport/shm/shm_transport.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "collectives/transport/culprit.h"
#include "collectives/transport/shm/shm_window.h"
#include "collectives/transport/tcp_mesh.h"
#include "collectives/transport/wire.h"

namespace muster {
namespace {

// While a rank sleeps on the window it looks after its TCP connections this often: a call of a peer
// that does not match comes there. (Death and abort ring the doorbell by way of Watch.)
constexpr absl::Duration kLook = absl::Milliseconds(10);
// Looks at the window between two looks at the clock.
constexpr int kSpinRound = 64;

inline void Relax() { __builtin_ia32_pause(); }

class ShmMesh : public Transport {
 public:
  ShmMesh(std::unique_ptr<TcpMesh> messages, std::unique_ptr<ShmWindow> window)
      : messages_(std::move(messages)), window_(std::move(window)) {}
  ~ShmMesh() override { Close(absl::OkStatus(), std::nullopt); }

  absl::string_view name() const override { return "shm"; }
  Rank rank() const override { return messages_->rank(); }
  int world_size() const override { return messages_->world_size(); }
  int local_world_size() const override { return world_size(); }
  Window* window() override { return window_.get(); }

  void PostSend(Rank peer, uint64_t tag, absl::Span<const std::byte> bytes,
                uint64_t token) override {
    messages_->PostSend(peer, tag, bytes, token);
  }
  void PostReceive(Rank peer, uint64_t tag, absl::Span<std::byte> destination,
                   uint64_t token) override {
    messages_->PostReceive(peer, tag, destination, token);
  }
  void PostStandingReceive(Rank peer, uint64_t tag, absl::Span<std::byte> destination,
                           uint64_t token) override {
    messages_->PostStandingReceive(peer, tag, destination, token);
  }
  void Expect(Rank peer, int delta) override { messages_->Expect(peer, delta); }
  void PostConsume(Rank peer, uint64_t tag, int64_t length, int element_bytes,
                   PieceConsumer* consumer, uint64_t token) override {
    messages_->PostConsume(peer, tag, length, element_bytes, consumer, token);
  }

  absl::Status Poll(absl::Time deadline, absl::Duration spin,
                    std::vector<uint64_t>* completed) override {
    MutexLock lock(&drive_mu_);
    if (!window_->waiting() || closed_) return messages_->Poll(deadline, spin, completed);
    if (window_->TakeMet()) return Met(completed);
    if (spin > absl::ZeroDuration()) {
      const absl::Time until = std::min(deadline, absl::Now() + spin);
      do {
        for (int i = 0; i < kSpinRound; ++i) {
          if (window_->TakeMet()) return Met(completed);
          Relax();
        }
      } while (absl::Now() < until && !woken_);
    }
    const size_t before = completed->size();
    while (true) {
      MUSTER_RETURN_IF_ERROR(
          messages_->Poll(absl::InfinitePast(), absl::ZeroDuration(), completed));
      if (window_->TakeMet()) return Met(completed);
      if (completed->size() > before || woken_.exchange(false)) return absl::OkStatus();
      if (const std::optional<Rank> gone = window_->ClosedWhileMissed(); gone.has_value()) {
        // It may have sent the reason just now.
        MUSTER_RETURN_IF_ERROR(
            messages_->Poll(absl::InfinitePast(), absl::ZeroDuration(), completed));
        return WithCulprit(absl::UnavailableError(absl::StrCat(
                               "rank ", *gone, " is gone: it left while more was expected of it")),
                           gone);
      }
      const absl::Time now = absl::Now();
      if (now >= deadline) return absl::OkStatus();
      window_->Block(std::min(deadline - now, kLook));
    }
  }

  void Watch(absl::Time deadline) override {
    messages_->Watch(deadline);
    window_->RingSelf();  // The driver may sleep on the window: let it look.
  }
  void WakeWatcher() override { messages_->WakeWatcher(); }
  void Wake() override {
    woken_ = true;
    messages_->Wake();
    window_->RingSelf();
  }

  void Close(const absl::Status& reason, std::optional<Rank> culprit) override {
    messages_->Close(reason, culprit);
    window_->RingSelf();
    MutexLock lock(&drive_mu_);  // Waits for the driver, whom the closed connections tell.
    if (std::exchange(closed_, true)) return;
    window_->Shut();
  }
  std::optional<MeshFailure> failure() const override { return messages_->failure(); }
  bool tainted() const override { return window_->tainted(); }

 private:
  absl::Status Met(std::vector<uint64_t>* completed) {
    completed->push_back(window_->token());
    return absl::OkStatus();
  }

  const std::unique_ptr<TcpMesh> messages_;
  const std::unique_ptr<ShmWindow> window_;
  std::atomic<bool> woken_{false};
  // Held by the driver in Poll, and by Close to wait the driver out.
  Mutex drive_mu_;
  bool closed_ = false;
};

// What each rank tells each other about its memory, little-endian.
constexpr size_t kIntroductionBytes = 36;
using Introduction = std::array<std::byte, kIntroductionBytes>;

Introduction Encode(const ShmWindow::Location& location) {
  Introduction bytes;
  std::byte* out = bytes.data();
  out = PutInteger(out, location.nonce);
  out = PutInteger(out, location.pid);
  out = PutInteger(out, location.capacity);
  out = PutInteger(out, location.area);
  PutInteger(out, location.fd);
  return bytes;
}

ShmWindow::Location Decode(const Introduction& bytes) {
  ShmWindow::Location location;
  const std::byte* in = bytes.data();
  in = GetInteger(in, &location.nonce);
  in = GetInteger(in, &location.pid);
  in = GetInteger(in, &location.capacity);
  in = GetInteger(in, &location.area);
  GetInteger(in, &location.fd);
  return location;
}

// Sends `mine` to all and receives theirs, over the control connections, which carry nothing else
// yet.
absl::StatusOr<std::vector<Introduction>> Introduce(const std::vector<TcpPeerSockets>& sockets,
                                                    Rank rank, const Introduction& mine,
                                                    absl::Time deadline) {
  std::vector<Introduction> theirs(sockets.size(), mine);
  for (Rank r = 0; r < static_cast<Rank>(sockets.size()); ++r) {
    if (r == rank) continue;
    // A fresh connection's buffer takes this whole.
    const ssize_t sent = send(sockets[r].control.get(), mine.data(), mine.size(), MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(mine.size())) {
      return WithCulprit(ErrnoStatus(errno, absl::StrCat("introducing myself to rank ", r)), r);
    }
  }
  for (Rank r = 0; r < static_cast<Rank>(sockets.size()); ++r) {
    size_t got = 0;
    while (r != rank && got < kIntroductionBytes) {
      pollfd readable = {sockets[r].control.get(), POLLIN, 0};
      if (poll(&readable, 1, PollTimeoutMs(deadline)) == 0) {
        return WithCulprit(
            absl::DeadlineExceededError(absl::StrCat("rank ", r, " did not introduce itself")), r);
      }
      const ssize_t now =
          recv(sockets[r].control.get(), theirs[r].data() + got, kIntroductionBytes - got, 0);
      if (now < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (now <= 0) {
        return WithCulprit(
            absl::UnavailableError(absl::StrCat("rank ", r, " is gone: it hung up early")), r);
      }
      got += static_cast<size_t>(now);
    }
  }
  return theirs;
}

absl::StatusOr<uint64_t> RandomNumber() {
  uint64_t number = 0;
  if (getrandom(&number, sizeof(number), 0) != sizeof(number)) {
    return ErrnoStatus(errno, "getrandom");
  }
  return number;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> ShmTransport::Connect(TcpListener& listener,
                                                                 MeshSpec spec,
                                                                 std::shared_ptr<SharedArena> arena,
                                                                 absl::Time deadline) {
  const Rank rank = spec.rank;
  const int world_size = static_cast<int>(spec.members.size());
  if (world_size > ShmWindow::kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("shared memory for ", world_size, " ranks; at most ", ShmWindow::kMaxRanks));
  }
  MUSTER_ASSIGN_OR_RETURN(std::vector<TcpPeerSockets> sockets,
                          ConnectMeshSockets(listener, spec, deadline));
  MUSTER_ASSIGN_OR_RETURN(const uint64_t nonce, RandomNumber());
  MUSTER_ASSIGN_OR_RETURN(auto window,
                          ShmWindow::Create(std::move(arena), rank, world_size, nonce));
  MUSTER_ASSIGN_OR_RETURN(const std::vector<Introduction> introductions,
                          Introduce(sockets, rank, Encode(window->location()), deadline));
  for (Rank r = 0; r < world_size; ++r) {
    if (r == rank) continue;
    MUSTER_RETURN_IF_ERROR(window->Map(r, Decode(introductions[r])));
  }
  // Nobody goes on, or away, before all have mapped all.
  Introduction ready = {};
  MUSTER_RETURN_IF_ERROR(Introduce(sockets, rank, ready, deadline).status());
  auto messages = std::make_unique<TcpMesh>(std::move(spec), std::move(sockets));
  std::unique_ptr<Transport> mesh =
      std::make_unique<ShmMesh>(std::move(messages), std::move(window));
  return mesh;
}

}  // namespace muster
