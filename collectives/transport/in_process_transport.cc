#include "collectives/transport/in_process_transport.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/mutex.h"
#include "collectives/transport/culprit.h"
#include "collectives/transport/in_process_end.h"
#include "collectives/transport/mesh_transport.h"

namespace muster {
namespace {

// Messages moved in one pass before completions are reported.
constexpr int kMessagesPerPass = 4;

using Mesh = std::vector<std::unique_ptr<InProcessEnd>>;

class InProcessTransport : public MeshTransport {
 public:
  InProcessTransport(std::shared_ptr<Mesh> mesh, Rank rank)
      : mesh_(std::move(mesh)), rank_(rank), end_(*(*mesh_)[static_cast<size_t>(rank)]) {}
  ~InProcessTransport() override { Close(absl::OkStatus(), std::nullopt); }

  absl::string_view name() const override { return "in-process"; }
  Rank rank() const override { return rank_; }
  int world_size() const override { return static_cast<int>(mesh_->size()); }
  int local_world_size() const override { return world_size(); }

  void PostSend(Rank peer, uint64_t tag, absl::Span<const std::byte> bytes,
                uint64_t token) override {
    MUSTER_CHECK_LE(static_cast<int64_t>(bytes.size()), kMaxMessageBytes);
    MutexLock lock(&drive_mu_);
    if (end_.failed()) return;
    if (!Peer(peer).TakeOffer(rank_, {tag, bytes, token})) {
      end_.Fail(Gone(peer, "it left before something was sent to it"), peer);
    }
  }

  void Expect(Rank peer, int delta) override {
    Peer(peer);  // Checks the rank.
    end_.Expect(peer, delta);
  }

  absl::Status Poll(absl::Time deadline, absl::Duration spin,
                    std::vector<uint64_t>* completed) override {
    const size_t before = completed->size();
    absl::Time spin_until = absl::InfinitePast();
    for (bool first = true;; first = false) {
      MutexLock lock(&drive_mu_);
      if (end_.failed()) return end_.failure()->status;
      Move(completed);
      if (end_.failed()) return end_.failure()->status;
      if (completed->size() > before || end_.TakeWoken()) return absl::OkStatus();
      if (const std::optional<Rank> debtor = end_.DepartedDebtor(); debtor.has_value()) {
        end_.Fail(Gone(*debtor, "it left while more was expected of it"), debtor);
        return end_.failure()->status;
      }
      const absl::Time now = absl::Now();
      if (now >= deadline) return absl::OkStatus();
      if (first) spin_until = now + spin;
      if (now >= spin_until) end_.WaitForWork(deadline);
    }
  }

  void Watch(absl::Time deadline) override { end_.Watch(deadline); }
  void WakeWatcher() override { end_.WakeWatcher(); }
  void Wake() override { end_.Wake(); }

  void Close(const absl::Status& reason, std::optional<Rank> culprit) override {
    end_.Fail(reason.ok() ? absl::CancelledError("the transport is closed") : reason, culprit);
    MutexLock lock(&drive_mu_);  // Waits for the driver, who sees the failure and leaves.
    if (std::exchange(closed_, true)) return;
    // An abort comes before the inbox closes, which peers would take for the failure.
    for (Rank r = 0; r < world_size() && !reason.ok(); ++r) {
      if (r == rank_) continue;
      Peer(r).Fail(
          absl::Status(reason.code(), absl::StrCat("rank ", rank_, " aborted: ", reason.message())),
          culprit);
    }
    for (Rank r : end_.CloseInbox()) {
      if (reason.ok())
        Peer(r).Fail(Gone(rank_, "it left before it took what was sent to it"), rank_);
    }
    for (Rank r = 0; r < world_size(); ++r) {
      if (r == rank_) continue;
      Peer(r).Withdraw(rank_);
      if (reason.ok()) Peer(r).Departed(rank_);
    }
  }

  std::optional<MeshFailure> failure() const override { return end_.failure(); }

 private:
  InProcessEnd& Peer(Rank peer) const {
    MUSTER_CHECK(peer >= 0 && peer < world_size() && peer != rank_)
        << "rank " << peer << " is no peer of rank " << rank_;
    return *(*mesh_)[static_cast<size_t>(peer)];
  }

  static absl::Status Gone(Rank rank, absl::string_view how) {
    return absl::UnavailableError(absl::StrCat("rank ", rank, " is gone: ", how));
  }

  void Post(Rank peer, const PendingReceive& receive) override {
    Peer(peer);  // Checks the rank.
    MutexLock lock(&drive_mu_);
    if (!end_.failed()) end_.Await(peer, receive);
  }

  // Moves some of the messages that are both offered and awaited.
  void Move(std::vector<uint64_t>* completed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_) {
    for (int i = 0; i < kMessagesPerPass; ++i) {
      const std::optional<ClaimedMessage> message = end_.Claim();
      if (!message.has_value()) break;
      const PendingReceive& receive = message->receive;
      const absl::Span<const std::byte> bytes = message->offer.bytes;
      const bool fits = static_cast<int64_t>(bytes.size()) == receive.length;
      if (fits && !bytes.empty()) {
        if (receive.consumer != nullptr) {
          receive.consumer->Consume(receive.token, 0, bytes);
        } else {
          std::memcpy(receive.destination, bytes.data(), bytes.size());
        }
      }
      end_.Settle(*message);
      if (!fits) {
        end_.Fail(LengthMismatch(receive.tag, receive.length, static_cast<int64_t>(bytes.size())),
                  std::nullopt);
        return;
      }
      Peer(message->from).SendCompleted(message->offer.token);
      completed->push_back(receive.token);
    }
    end_.TakeCompleted(completed);
  }

  const std::shared_ptr<Mesh> mesh_;
  const Rank rank_;
  InProcessEnd& end_;
  // Held by the driver inside Post* and Poll, and by Close to wait the driver out.
  Mutex drive_mu_;
  bool closed_ ABSL_GUARDED_BY(drive_mu_) = false;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> MakeInProcessMesh(int world_size, TransportLimits limits) {
  MUSTER_CHECK_GE(world_size, 1);
  auto mesh = std::make_shared<Mesh>();
  for (int r = 0; r < world_size; ++r) {
    mesh->push_back(std::make_unique<InProcessEnd>(world_size, limits));
  }
  std::vector<std::unique_ptr<Transport>> ends;
  for (Rank r = 0; r < world_size; ++r) {
    ends.push_back(std::make_unique<InProcessTransport>(mesh, r));
  }
  return ends;
}

}  // namespace muster
