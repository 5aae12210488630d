// Peers that are killed or frozen, in processes of their own, over every transport that leaves this
// process.
#include "tests/collectives/engine/peer_process.h"

#include <signal.h>
#include <sys/resource.h>

#include <thread>

#include "tests/wait_until.h"

namespace muster {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

// Of all threads of this process, in user space and in the kernel.
absl::Duration ProcessorTime() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return absl::DurationFromTimeval(usage.ru_utime) + absl::DurationFromTimeval(usage.ru_stime);
}

class PeerProcessTest : public testing::TestWithParam<MeshKind> {
 protected:
  // Waits for `work` in a thread of its own while this one kills the peer. Waiting must have cost
  // next to nothing of a processor.
  static void ExpectQuietWaitThenDeath(PeerProcess& peer, Work work) {
    std::thread waiter([work]() mutable {
      const absl::Status status = work.Wait();
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
      EXPECT_THAT(Text(status), HasSubstr("rank 1"));
    });
    constexpr absl::Duration kWait = absl::Milliseconds(500);
    LetTimePass(absl::Milliseconds(50), "a waiting thread may spin for a moment, then blocks");
    const absl::Duration before = ProcessorTime();
    LetTimePass(kWait, "the test is about what waiting costs");
    const absl::Duration used = ProcessorTime() - before;
    // A thread that spins takes all of it, or half where it shares its core.
    EXPECT_LT(used, kWait / 5);
    peer.Signal(SIGKILL);
    waiter.join();
    EXPECT_EQ(work.culprit(), std::optional<Rank>(1));
  }
};

TEST_P(PeerProcessTest, KilledWithinACollectiveItIsNamed) {
  PeerProcess peer(GetParam(), PeerLife::kReducesForEver);
  Rank0 own(peer, GetParam());
  absl::Status status;
  for (int round = 0; status.ok(); ++round) {
    ASSERT_LT(round, 10000);
    Work work = own.Reduce();
    if (round == 3) peer.Signal(SIGKILL);
    status = work.Wait();
  }
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(Text(status), AllOf(HasSubstr("rank 1"), HasSubstr(peer.address())));
  EXPECT_EQ(own.communicator->failure()->culprit, std::optional<Rank>(1));
  EXPECT_EQ(own.data[0], 2.0f);
  EXPECT_TRUE(absl::IsUnavailable(own.communicator->Barrier().Wait()));
}

TEST_P(PeerProcessTest, KilledWithinAPushOrAPullTheServerIsNamed) {
  PeerProcess peer(GetParam(), PeerLife::kServesForEver);
  Rank0 own(peer, GetParam());
  std::thread killer;
  absl::Status status;
  for (int round = 0; status.ok(); ++round) {
    ASSERT_LT(round, 10000);
    if (round == 3) {
      killer = std::thread([&peer] {
        LetTimePass(absl::Milliseconds(2), "the signal comes within a push or a pull");
        peer.Signal(SIGKILL);
      });
    }
    status = PushAndPull(*own.communicator, own.data);
  }
  killer.join();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(Text(status), HasSubstr("rank 1"));
  EXPECT_EQ(own.communicator->failure()->culprit, std::optional<Rank>(1));
}

TEST_P(PeerProcessTest, KilledWhileThisRankWaitsInAReceive) {
  PeerProcess peer(GetParam(), PeerLife::kIdle);
  Rank0 own(peer, GetParam());
  ExpectQuietWaitThenDeath(
      peer, own.communicator->Receive(own.data, kPeerCount, DType::kF32, /*from=*/1));
}

TEST_P(PeerProcessTest, KilledWhileThisRankWaitsInACollective) {
  PeerProcess peer(GetParam(), PeerLife::kIdle);
  Rank0 own(peer, GetParam());
  ExpectQuietWaitThenDeath(peer, own.Reduce());
}

TEST_P(PeerProcessTest, KilledWhileNobodyWaitsItIsNoticed) {
  PeerProcess peer(GetParam(), PeerLife::kIdle);
  Rank0 own(peer, GetParam());
  peer.Signal(SIGKILL);
  ASSERT_TRUE(WaitUntil([&] { return own.communicator->failure().has_value(); }));
  EXPECT_EQ(own.communicator->failure()->culprit, std::optional<Rank>(1));
}

TEST_P(PeerProcessTest, FrozenItIsNamedAtTheDeadline) {
  PeerProcess peer(GetParam(), PeerLife::kReducesForEver);
  Rank0 own(peer, GetParam());
  absl::Status status;
  for (int round = 0; status.ok(); ++round) {
    ASSERT_LT(round, 10000);
    if (round == 2) peer.Signal(SIGSTOP);
    status = own.Reduce(round < 2 ? absl::Seconds(60) : absl::Milliseconds(300)).Wait();
  }
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(Text(status), AllOf(HasSubstr("bucket-3"), HasSubstr("waits for rank 1")));
  EXPECT_EQ(own.communicator->failure()->culprit, std::optional<Rank>(1));
  // It thaws, finds itself left behind, and ends.
  peer.Signal(SIGCONT);
  peer.AwaitEnd();
}

INSTANTIATE_TEST_SUITE_P(Transports, PeerProcessTest,
                         testing::Values(MeshKind::kTcp, MeshKind::kGrpc, MeshKind::kShm,
                                         MeshKind::kOfi),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::RunTestsOrPeer(argc, argv); }
