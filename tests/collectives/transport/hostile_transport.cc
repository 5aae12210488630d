#include "tests/collectives/transport/hostile_transport.h"

#include <cstring>
#include <utility>

#include "absl/time/clock.h"
#include "base/check.h"
#include "collectives/transport/mesh_transport.h"
#include "tests/collectives/transport/hostile_hub.h"

namespace muster {
namespace {

class HostileTransport : public MeshTransport {
 public:
  HostileTransport(std::shared_ptr<HostileHub> hub, Rank rank)
      : hub_(std::move(hub)), rank_(rank) {}
  ~HostileTransport() override { Close(absl::OkStatus(), std::nullopt); }

  absl::string_view name() const override { return "hostile"; }
  Rank rank() const override { return rank_; }
  int world_size() const override { return hub_->world_size(); }
  int local_world_size() const override { return world_size(); }

  void PostSend(Rank peer, uint64_t tag, absl::Span<const std::byte> bytes,
                uint64_t token) override {
    CheckPeer(peer);
    MutexLock lock(&drive_mu_);
    if (!hub_->failure(rank_).has_value()) hub_->Send(rank_, peer, tag, bytes, token);
  }
  void Expect(Rank peer, int delta) override {
    CheckPeer(peer);
    hub_->Expect(rank_, peer, delta);
  }

  absl::Status Poll(absl::Time deadline, absl::Duration spin,
                    std::vector<uint64_t>* completed) override {
    const size_t before = completed->size();
    while (true) {
      MutexLock lock(&drive_mu_);
      const std::vector<HostileHub::Claimed> claimed = hub_->Pass(rank_, completed);
      for (const HostileHub::Claimed& message : claimed) {
        Deliver(message);
        hub_->Delivered(rank_, message);
        completed->push_back(message.receive.token);
      }
      if (const auto failure = hub_->failure(rank_); failure.has_value()) return failure->status;
      if (completed->size() > before || hub_->TakeWoken(rank_)) return absl::OkStatus();
      if (absl::Now() >= deadline) return absl::OkStatus();
      hub_->WaitForWork(rank_, deadline);
    }
  }

  void Watch(absl::Time deadline) override { hub_->Watch(rank_, deadline); }
  void WakeWatcher() override { hub_->WakeWatcher(rank_); }
  void Wake() override { hub_->Wake(rank_); }
  void Close(const absl::Status& reason, std::optional<Rank> culprit) override {
    hub_->Fail(rank_, reason.ok() ? absl::CancelledError("the transport is closed") : reason,
               culprit);
    MutexLock lock(&drive_mu_);  // Waits for the driver, who sees the failure and leaves.
    hub_->Close(rank_, reason, culprit);
  }
  std::optional<MeshFailure> failure() const override { return hub_->failure(rank_); }

 private:
  void CheckPeer(Rank peer) const {
    MUSTER_CHECK(peer >= 0 && peer < world_size() && peer != rank_)
        << "rank " << peer << " is no peer of rank " << rank_;
  }
  void Post(Rank peer, const PendingReceive& receive) override {
    CheckPeer(peer);
    MutexLock lock(&drive_mu_);
    if (!hub_->failure(rank_).has_value()) hub_->Await(rank_, peer, receive);
  }
  void Deliver(const HostileHub::Claimed& message) {
    const PendingReceive& receive = message.receive;
    if (message.length == 0) return;
    if (receive.consumer == nullptr) {
      std::memcpy(receive.destination, message.bytes.get(), static_cast<size_t>(message.length));
      return;
    }
    const int64_t element = receive.element_bytes;
    for (int64_t offset = 0; offset < message.length;) {
      const auto left = static_cast<uint64_t>((message.length - offset) / element);
      // Now and then the rest, so that long messages come to an end.
      const uint64_t elements = hub_->Draw(rank_, 4) == 0 ? left : 1 + hub_->Draw(rank_, left);
      const int64_t size = static_cast<int64_t>(elements) * element;
      receive.consumer->Consume(
          receive.token, offset,
          absl::MakeConstSpan(message.bytes.get() + offset, static_cast<size_t>(size)));
      offset += size;
    }
  }

  const std::shared_ptr<HostileHub> hub_;
  const Rank rank_;
  // Held by the driver inside Post* and Poll, and by Close to wait the driver out.
  Mutex drive_mu_;
};

}  // namespace

HostileMesh MakeHostileMesh(int world_size, uint64_t seed, TransportLimits limits) {
  HostileMesh mesh;
  mesh.hub = std::make_shared<HostileHub>(world_size, seed, limits);
  for (Rank r = 0; r < world_size; ++r) {
    mesh.ends.push_back(std::make_unique<HostileTransport>(mesh.hub, r));
  }
  return mesh;
}

void KillRank(HostileHub& hub, Rank rank) { hub.Kill(rank); }

}  // namespace muster
