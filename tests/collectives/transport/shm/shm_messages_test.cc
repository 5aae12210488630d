// What is particular to messages in shared memory: rings and blocks that run out, memory of every
// kind, and processes that die or freeze while theirs is read.
#include <gtest/gtest.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "collectives/transport/culprit.h"
#include "collectives/transport/shm/shm_area.h"
#include "collectives/transport/shm/shm_blocks.h"
#include "tests/collectives/engine/peer_process.h"
#include "tests/collectives/transport/mesh_fixture.h"

#include "tests/wait_until.h"

namespace muster {
namespace {

using Bytes = std::vector<std::byte>;

Bytes Filled(size_t size, int seed) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251 + seed);
  return bytes;
}

// Drives `ends` by turns until `count` operations of each have completed.
absl::Status DriveAll(const std::vector<std::unique_ptr<Transport>>& ends, size_t count) {
  std::vector<std::vector<uint64_t>> completed(ends.size());
  const absl::Time limit = absl::Now() + absl::Seconds(60);
  for (bool all = false; !all;) {
    if (absl::Now() > limit) return absl::DeadlineExceededError("test");
    all = true;
    for (size_t r = 0; r < ends.size(); ++r) {
      const absl::Status status =
          ends[r]->Poll(absl::InfinitePast(), absl::ZeroDuration(), &completed[r]);
      if (!status.ok()) return status;
      all = all && completed[r].size() >= count;
    }
  }
  return absl::OkStatus();
}

class ShmMessagesTest : public testing::TestWithParam<MeshKind> {
 protected:
  // Rank 0 sends `count` messages of `size` bytes before rank 1 looks; it awaits them in the
  // opposite order.
  void SendAllThenReceiveBackwards(int count, size_t size) {
    const TestMesh mesh = MakeMesh(GetParam(), 2);
    std::vector<Bytes> sent, got(static_cast<size_t>(count), Bytes(size));
    for (int i = 0; i < count; ++i) sent.push_back(Filled(size, i));
    for (int i = 0; i < count; ++i) mesh.ends[0]->PostSend(1, static_cast<uint64_t>(i), sent[i], 1);
    std::vector<uint64_t> early;
    ASSERT_TRUE(mesh.ends[1]->Poll(absl::InfinitePast(), {}, &early).ok());
    EXPECT_TRUE(early.empty());
    for (int i = count; i-- > 0;) {
      mesh.ends[1]->PostReceive(0, static_cast<uint64_t>(i), absl::MakeSpan(got[i]), 2);
    }
    const absl::Status status = DriveAll(mesh.ends, static_cast<size_t>(count));
    ASSERT_TRUE(status.ok()) << status;
    for (int i = 0; i < count; ++i) ASSERT_EQ(got[i], sent[i]) << i;
  }
};

TEST_P(ShmMessagesTest, MoreTinyOnesThanTheRingHoldsInAnyOrder) {
  SendAllThenReceiveBackwards(TransportLimits().max_pending_per_peer, 16);
}

TEST_P(ShmMessagesTest, MoreSmallOnesThanThereAreBlocksInAnyOrder) {
  SendAllThenReceiveBackwards(2 * static_cast<int>(ShmBlocks::kSmall + ShmBlocks::kLarge), 3000);
}

TEST_P(ShmMessagesTest, MoreThanMayBeTakenInEarlyInAnyOrder) {
  SendAllThenReceiveBackwards(2 * static_cast<int>(ShmBlocks::kLarge), 60000);
}

TEST_P(ShmMessagesTest, ATagInUseAgainKeepsItsOrder) {
  for (const size_t size : {size_t{8}, size_t{2000}}) {
    const TestMesh mesh = MakeMesh(GetParam(), 2);
    const Bytes first = Filled(size, 1), second = Filled(size, 2);
    std::vector<uint64_t> completed;
    mesh.ends[0]->PostSend(1, 5, first, 1);
    ASSERT_TRUE(mesh.ends[0]->Poll(absl::Now() + absl::Seconds(10), {}, &completed).ok());
    ASSERT_EQ(completed.size(), 1u);  // So the tag is free.
    mesh.ends[0]->PostSend(1, 5, second, 1);
    ASSERT_TRUE(mesh.ends[1]->Poll(absl::InfinitePast(), {}, &completed).ok());
    for (const Bytes& expected : {first, second}) {
      Bytes got(size);
      completed.clear();
      mesh.ends[1]->PostReceive(0, 5, absl::MakeSpan(got), 2);
      ASSERT_TRUE(mesh.ends[1]->Poll(absl::Now() + absl::Seconds(10), {}, &completed).ok());
      EXPECT_EQ(got, expected);
    }
  }
}

TEST_P(ShmMessagesTest, LastWordsArriveThoughTheRingIsFull) {
  const TestMesh mesh = MakeMesh(GetParam(), 2);
  constexpr int kMessages = 5 * ShmRing::kSlots;
  const Bytes sent = Filled(64, 1);
  for (int i = 0; i < kMessages; ++i) mesh.ends[0]->PostSend(1, static_cast<uint64_t>(i), sent, 1);
  std::thread leaver([&] { mesh.ends[0]->Close(absl::OkStatus(), std::nullopt); });
  std::vector<Bytes> got(kMessages, Bytes(sent.size()));
  for (int i = 0; i < kMessages; ++i) {
    mesh.ends[1]->PostReceive(0, static_cast<uint64_t>(i), absl::MakeSpan(got[i]), 2);
  }
  std::vector<uint64_t> completed;
  while (completed.size() < kMessages) {
    ASSERT_TRUE(mesh.ends[1]->Poll(absl::Now() + absl::Seconds(20), {}, &completed).ok());
  }
  leaver.join();
  EXPECT_EQ(got.back(), sent);
}

INSTANTIATE_TEST_SUITE_P(Kinds, ShmMessagesTest,
                         testing::Values(MeshKind::kShm, MeshKind::kShmRegistered,
                                         MeshKind::kShmStaged),
                         [](const auto& info) { return NameOf(info.param); });

// Keeps what it is given, and checks where it lies.
class Keeper : public PieceConsumer {
 public:
  void Consume(uint64_t, int64_t offset, absl::Span<const std::byte> piece) override {
    EXPECT_EQ(offset, static_cast<int64_t>(bytes.size()));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(piece.data()) % 8, 0u);
    bytes.insert(bytes.end(), piece.begin(), piece.end());
  }
  Bytes bytes;
};

TEST(ShmMessagesAlignmentTest, ElementsLieAlignedThoughTheSendersDidNot) {
  const TestMesh mesh = MakeMesh(MeshKind::kShm, 2);
  for (const size_t size : {size_t{48}, size_t{8000}, size_t{40000}, size_t{800000}}) {
    auto buffer = mesh.arenas[0]->Allocate(static_cast<int64_t>(size) + 3);
    ASSERT_TRUE(buffer.ok());
    const Bytes expected = Filled(size, 3);
    std::memcpy(buffer->data() + 3, expected.data(), size);
    Keeper keeper;
    mesh.ends[1]->PostConsume(0, size, static_cast<int64_t>(size), 8, &keeper, 1);
    mesh.ends[0]->PostSend(1, size, absl::MakeConstSpan(buffer->data() + 3, size), 2);
    ASSERT_TRUE(DriveAll(mesh.ends, 1).ok());
    EXPECT_EQ(keeper.bytes, expected);
  }
}

struct SenderCase {
  const char* name;
  MeshKind kind;
  PeerLife life;
};

class ShmSenderProcessTest : public testing::TestWithParam<SenderCase> {
 protected:
  ShmSenderProcessTest()
      : other_(GetParam().kind, GetParam().life), own_(other_, GetParam().kind) {}

  absl::Status ReceiveOne(absl::Duration timeout = absl::Seconds(60)) {
    CollectiveOptions options;
    options.timeout = timeout;
    return own_.communicator->Receive(own_.data, kPeerCount, DType::kF32, /*from=*/1, options)
        .Wait();
  }

  PeerProcess other_;
  Rank0 own_;
};

TEST_P(ShmSenderProcessTest, ASenderKilledAtAnyMomentFailsTheReceiverAndIsNamed) {
  ASSERT_TRUE(ReceiveOne().ok());
  std::thread killer([this] {
    LetTimePass(absl::Milliseconds(7), "lets it get somewhere");
    other_.Signal(SIGKILL);
  });
  absl::Status status;
  while (status.ok()) status = ReceiveOne();
  killer.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(CulpritOf(status), std::optional<Rank>(1));
}

TEST_P(ShmSenderProcessTest, WhoWaitsForAFrozenSenderSleepsAndLeavesAtItsDeadline) {
  ASSERT_TRUE(ReceiveOne().ok());
  const auto processor_time = [] {
    timespec now = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return absl::DurationFromTimespec(now);
  };
  other_.Signal(SIGSTOP);
  absl::Duration used;
  absl::Status status;
  while (status.ok()) {
    const absl::Duration before = processor_time();
    status = ReceiveOne(absl::Milliseconds(500));
    used = processor_time() - before;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_LT(used, absl::Milliseconds(200));
  // The memory is the caller's again, whatever the sender does.
  std::fill(own_.data, own_.data + kPeerCount, 7.0f);
  other_.Signal(SIGCONT);
  other_.AwaitEnd();
  EXPECT_EQ(std::count(own_.data, own_.data + kPeerCount, 7.0f), kPeerCount);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, ShmSenderProcessTest,
    testing::Values(SenderCase{"Registered", MeshKind::kShm, PeerLife::kSendsForEver},
                    SenderCase{"Unregistered", MeshKind::kShm, PeerLife::kSendsUnregisteredForEver},
                    SenderCase{"Staged", MeshKind::kShmStaged,
                               PeerLife::kSendsUnregisteredForEver}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::RunTestsOrPeer(argc, argv); }
