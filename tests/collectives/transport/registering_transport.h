// A transport that sends every message from memory of an arena: for tests that hold what they send
// elsewhere.
#ifndef MUSTER_TESTS_COLLECTIVES_TRANSPORT_REGISTERING_TRANSPORT_H_
#define MUSTER_TESTS_COLLECTIVES_TRANSPORT_REGISTERING_TRANSPORT_H_

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/transport/shm/shared_arena.h"
#include "collectives/transport/transport.h"

namespace muster {

class RegisteringTransport : public Transport {
 public:
  RegisteringTransport(std::unique_ptr<Transport> base, std::shared_ptr<SharedArena> arena)
      : base_(std::move(base)), arena_(std::move(arena)) {}
  ~RegisteringTransport() override { base_.reset(); }

  absl::string_view name() const override { return base_->name(); }
  Rank rank() const override { return base_->rank(); }
  int world_size() const override { return base_->world_size(); }
  int local_world_size() const override { return base_->local_world_size(); }
  void PostSend(Rank peer, uint64_t tag, absl::Span<const std::byte> bytes,
                uint64_t token) override {
    auto buffer = arena_->Allocate(static_cast<int64_t>(bytes.size()));
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    if (!bytes.empty()) std::memcpy(buffer->data(), bytes.data(), bytes.size());
    base_->PostSend(peer, tag, absl::MakeConstSpan(buffer->data(), bytes.size()), token);
    sent_.push_back(*std::move(buffer));
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
  void Watch(absl::Time deadline) override { base_->Watch(deadline); }
  void WakeWatcher() override { base_->WakeWatcher(); }
  void Wake() override { base_->Wake(); }
  void Close(const absl::Status& reason, std::optional<Rank> culprit) override {
    base_->Close(reason, culprit);
  }
  std::optional<MeshFailure> failure() const override { return base_->failure(); }

 private:
  std::unique_ptr<Transport> base_;
  const std::shared_ptr<SharedArena> arena_;
  std::vector<SharedBuffer> sent_;  // kept to the end
};

}  // namespace muster

#endif  // MUSTER_TESTS_COLLECTIVES_TRANSPORT_REGISTERING_TRANSPORT_H_
