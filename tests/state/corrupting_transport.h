// A transport whose n-th long message leaves with one bit changed, as memory or a network card
// would.
#ifndef MUSTER_TESTS_STATE_CORRUPTING_TRANSPORT_H_
#define MUSTER_TESTS_STATE_CORRUPTING_TRANSPORT_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/transport/transport.h"

namespace muster {

class CorruptingTransport : public Transport {
 public:
  // Messages of at least `min_bytes` count, the first as number 0. In that one the bit `bit` of the
  // byte that is `from_end` bytes before its end changes.
  CorruptingTransport(std::unique_ptr<Transport> inner, size_t min_bytes, int number,
                      size_t from_end, int bit)
      : inner_(std::move(inner)),
        min_bytes_(min_bytes),
        number_(number),
        from_end_(from_end),
        bit_(bit) {}

  absl::string_view name() const override { return inner_->name(); }
  Rank rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  int local_world_size() const override { return inner_->local_world_size(); }
  void PostSend(Rank peer, uint64_t tag, absl::Span<const std::byte> bytes,
                uint64_t token) override {
    if (bytes.size() >= min_bytes_ && number_-- == 0) {
      copy_.assign(bytes.begin(), bytes.end());
      copy_[bytes.size() - 1 - from_end_] ^= std::byte{1} << bit_;
      bytes = copy_;
    }
    inner_->PostSend(peer, tag, bytes, token);
  }
  void PostReceive(Rank peer, uint64_t tag, absl::Span<std::byte> destination,
                   uint64_t token) override {
    inner_->PostReceive(peer, tag, destination, token);
  }
  void PostStandingReceive(Rank peer, uint64_t tag, absl::Span<std::byte> destination,
                           uint64_t token) override {
    inner_->PostStandingReceive(peer, tag, destination, token);
  }
  void Expect(Rank peer, int delta) override { inner_->Expect(peer, delta); }
  void PostConsume(Rank peer, uint64_t tag, int64_t length, int element_bytes,
                   PieceConsumer* consumer, uint64_t token) override {
    inner_->PostConsume(peer, tag, length, element_bytes, consumer, token);
  }
  absl::Status Poll(absl::Time deadline, absl::Duration spin,
                    std::vector<uint64_t>* completed) override {
    return inner_->Poll(deadline, spin, completed);
  }
  void Watch(absl::Time deadline) override { inner_->Watch(deadline); }
  void WakeWatcher() override { inner_->WakeWatcher(); }
  void Wake() override { inner_->Wake(); }
  void Close(const absl::Status& reason, std::optional<Rank> culprit) override {
    inner_->Close(reason, culprit);
  }
  std::optional<MeshFailure> failure() const override { return inner_->failure(); }

 private:
  const std::unique_ptr<Transport> inner_;
  const size_t min_bytes_;
  int number_;
  const size_t from_end_;
  const int bit_;
  std::vector<std::byte> copy_;  // lives as long as the mesh
};

}  // namespace muster

#endif  // MUSTER_TESTS_STATE_CORRUPTING_TRANSPORT_H_
