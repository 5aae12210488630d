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
#include "collectives/transport/forwarding_transport.h"

namespace muster {

class RegisteringTransport : public ForwardingTransport {
 public:
  RegisteringTransport(std::unique_ptr<Transport> base, std::shared_ptr<SharedArena> arena)
      : ForwardingTransport(std::move(base)), arena_(std::move(arena)) {}
  ~RegisteringTransport() override { base_.reset(); }

  void PostSend(Rank peer, uint64_t tag, absl::Span<const std::byte> bytes,
                uint64_t token) override {
    auto buffer = arena_->Allocate(static_cast<int64_t>(bytes.size()));
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    if (!bytes.empty()) std::memcpy(buffer->data(), bytes.data(), bytes.size());
    base_->PostSend(peer, tag, absl::MakeConstSpan(buffer->data(), bytes.size()), token);
    sent_.push_back(*std::move(buffer));
  }

 private:
  const std::shared_ptr<SharedArena> arena_;
  std::vector<SharedBuffer> sent_;  // kept to the end
};

}  // namespace muster

#endif  // MUSTER_TESTS_COLLECTIVES_TRANSPORT_REGISTERING_TRANSPORT_H_
