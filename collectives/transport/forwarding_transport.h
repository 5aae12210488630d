// A transport that hands everything to another one: a base for those that change one thing.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_FORWARDING_TRANSPORT_H_
#define MUSTER_COLLECTIVES_TRANSPORT_FORWARDING_TRANSPORT_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/transport/transport.h"

namespace muster {

// Without the window: what it carries goes by messages.
class ForwardingTransport : public Transport {
 public:
  explicit ForwardingTransport(std::unique_ptr<Transport> base) : base_(std::move(base)) {}

  absl::string_view name() const override { return base_->name(); }
  Rank rank() const override { return base_->rank(); }
  int world_size() const override { return base_->world_size(); }
  int local_world_size() const override { return base_->local_world_size(); }
  void PostSend(Rank peer, uint64_t tag, absl::Span<const std::byte> bytes,
                uint64_t token) override {
    base_->PostSend(peer, tag, bytes, token);
  }
  void PostReceive(Rank peer, uint64_t tag, absl::Span<std::byte> destination,
                   uint64_t token) override {
    base_->PostReceive(peer, tag, destination, token);
  }
  void PostStandingReceive(Rank peer, uint64_t tag, absl::Span<std::byte> destination,
                           uint64_t token) override {
    base_->PostStandingReceive(peer, tag, destination, token);
  }
  void Expect(Rank peer, int delta) override { base_->Expect(peer, delta); }
  void PostConsume(Rank peer, uint64_t tag, int64_t length, int element_bytes,
                   PieceConsumer* consumer, uint64_t token) override {
    base_->PostConsume(peer, tag, length, element_bytes, consumer, token);
  }
  absl::Status Poll(absl::Time deadline, absl::Duration spin,
                    std::vector<uint64_t>* completed) override {
    return base_->Poll(deadline, spin, completed);
  }
  bool has_backlog() const override { return base_->has_backlog(); }
  void Watch(absl::Time deadline) override { base_->Watch(deadline); }
  void WakeWatcher() override { base_->WakeWatcher(); }
  void Wake() override { base_->Wake(); }
  void Close(const absl::Status& reason, std::optional<Rank> culprit) override {
    base_->Close(reason, culprit);
  }
  std::optional<MeshFailure> failure() const override { return base_->failure(); }

 protected:
  // The posts and memory of derived classes outlive it only if they reset it first.
  std::unique_ptr<Transport> base_;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_FORWARDING_TRANSPORT_H_
