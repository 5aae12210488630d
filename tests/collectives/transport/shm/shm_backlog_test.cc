// What a rank still has to tell its peers when all it was asked for is done.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/engine/communicator.h"
#include "collectives/transport/forwarding_transport.h"
#include "collectives/transport/shm/shm_area.h"
#include "tests/collectives/transport/mesh_fixture.h"
#include "tests/wait_until.h"

namespace muster {
namespace {

// Takes posts, and does nothing else until it is let go.
class HeldTransport : public ForwardingTransport {
 public:
  HeldTransport(std::unique_ptr<Transport> base, std::atomic<bool>& held)
      : ForwardingTransport(std::move(base)), held_(held) {}
  absl::Status Poll(absl::Time deadline, absl::Duration spin,
                    std::vector<uint64_t>* completed) override {
    EXPECT_TRUE(WaitUntil([this] { return !held_; }));
    return base_->Poll(deadline, spin, completed);
  }

 private:
  std::atomic<bool>& held_;
};

class ShmBacklogTest : public testing::TestWithParam<MeshKind> {};

TEST_P(ShmBacklogTest, AnIdleRankStillSaysWhatItHasTakenOnceThereIsRoom) {
  TestMesh mesh = MakeMesh(GetParam(), 2);
  std::atomic<bool> held{true};
  mesh.ends[1] = std::make_unique<HeldTransport>(std::move(mesh.ends[1]), held);
  CommunicatorOptions options;
  options.default_timeout = absl::Seconds(30);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (auto& end : mesh.ends)
    ranks.push_back(Communicator::Create(std::move(end), options).value());
  // Taken where it lies, so that it is done when the other says so.
  const std::vector<float> large(300'000, 7.0f);
  Work send = ranks[1]->Send(large.data(), 300'000, DType::kF32, /*to=*/0);
  // Fills what leads to the other, which does not look.
  // Two entries each, with a last one for the call below.
  constexpr int kSmall = ShmRing::kSlots / 2;
  std::vector<int32_t> small(kSmall, 5), got(kSmall);
  for (int i = 0; i < kSmall; ++i) {
    ASSERT_TRUE(ranks[0]->Send(&small[i], 1, DType::kI32, /*to=*/1).Wait().ok());
  }
  std::vector<float> received(large.size());
  ASSERT_TRUE(ranks[0]->Receive(received.data(), 300'000, DType::kF32, /*from=*/1).Wait().ok());
  EXPECT_EQ(received, large);
  // Rank 0 has nothing more to do.
  held = false;
  EXPECT_TRUE(send.Wait().ok());
  for (int i = 0; i < kSmall; ++i) {
    ASSERT_TRUE(ranks[1]->Receive(&got[i], 1, DType::kI32, /*from=*/0).Wait().ok());
  }
  EXPECT_EQ(got, small);
}

TEST_P(ShmBacklogTest, WhatIsNoReasonToWakeDoesNotKeepFromWaking) {
  TestMesh mesh = MakeMesh(GetParam(), 2);
  // Small ones are copied when they are sent; that they were taken need not be known soon.
  constexpr int kSmall = 2 * ShmRing::kSlots;
  const std::vector<std::byte> small(1024, std::byte{5}), large(300'000, std::byte{7});
  const auto poll_until = [](Transport& end, size_t count) {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    std::vector<uint64_t> completed;
    while ((completed.size() < count || end.has_backlog()) && absl::Now() < deadline) {
      ASSERT_TRUE(end.Poll(deadline, absl::ZeroDuration(), &completed).ok());
    }
    EXPECT_EQ(completed.size(), count);
  };
  RunRanks(2, [&](Rank r) {
    Transport& end = *mesh.ends[r];
    if (r == 0) {
      for (int i = 0; i < kSmall; ++i) end.PostSend(1, static_cast<uint64_t>(i), small, 1);
      end.PostSend(1, kSmall, large, 2);
      poll_until(end, kSmall + 1);
      return;
    }
    LetTimePass(absl::Milliseconds(5), "lets the sender sleep, most often");
    // Each is told of by itself.
    for (int i = 0; i < kSmall; ++i) {
      std::vector<std::byte> got(small.size());
      end.PostReceive(0, static_cast<uint64_t>(i), absl::MakeSpan(got), 1);
      std::vector<uint64_t> completed;
      while (completed.empty()) {
        ASSERT_TRUE(end.Poll(absl::InfinitePast(), absl::ZeroDuration(), &completed).ok());
      }
      EXPECT_EQ(got, small);
    }
    std::vector<std::byte> got(large.size());
    end.PostReceive(0, kSmall, absl::MakeSpan(got), 2);
    poll_until(end, 1);
    EXPECT_EQ(got, large);
  });
}

INSTANTIATE_TEST_SUITE_P(Meshes, ShmBacklogTest,
                         testing::Values(MeshKind::kShm, MeshKind::kTwoLevelOneHost),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace muster
