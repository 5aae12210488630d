// What is particular to libfabric: choosing a provider loudly, forming meshes, registered memory,
// leaving while peers are idle.
#include "collectives/transport/ofi/ofi_transport.h"

#include <unistd.h>

#include "collectives/transport/culprit.h"
#include "tests/collectives/transport/mesh_fixture.h"
#include "tests/wait_until.h"

namespace muster {
namespace {

using testing::AllOf;
using testing::HasSubstr;

absl::Time Soon() { return absl::Now() + kTestPatience; }
std::string Text(const absl::Status& status) { return std::string(status.message()); }

// Polls until that many completions have come.
absl::Status Await(Transport& end, size_t count) {
  std::vector<uint64_t> completed;
  const absl::Time limit = Soon();
  while (completed.size() < count) {
    const absl::Status status = end.Poll(limit, {}, &completed);
    if (!status.ok()) return status;
    if (absl::Now() >= limit) return absl::DeadlineExceededError("test");
  }
  return absl::OkStatus();
}

// Listeners and the spec of a mesh of two.
class OfiTransportTest : public testing::Test {
 protected:
  OfiTransportTest() {
    for (uint64_t i = 0; i < 2; ++i) {
      listeners_.push_back(*TcpListener::Create());
      spec_.members.push_back({Incarnation{i + 1}, listeners_.back()->address()});
    }
    spec_.token = "fleet/job";
    spec_.epoch = 5;
  }
  absl::StatusOr<std::unique_ptr<OfiTransport>> Connect(Rank rank, const OfiOptions& options = {},
                                                        absl::Time deadline = Soon()) {
    MeshSpec spec = spec_;
    spec.rank = rank;
    return OfiTransport::Connect(*listeners_[rank], spec, options, deadline);
  }
  std::vector<std::unique_ptr<OfiTransport>> Form(const OfiOptions& options = {}) {
    std::vector<std::unique_ptr<OfiTransport>> ends(2);
    RunRanks(2, [&](Rank r) {
      auto end = Connect(r, options);
      EXPECT_TRUE(end.ok()) << end.status();
      if (end.ok()) ends[r] = *std::move(end);
    });
    return ends;
  }
  // Sends patterned bytes from rank 0 to rank 1 and compares.
  void Transfer(Transport& from, Transport& to, std::vector<std::byte>& sent,
                std::vector<std::byte>& got) {
    for (size_t i = 0; i < sent.size(); ++i)
      sent[i] = static_cast<std::byte>(i * 2654435761u >> 13);
    std::thread receiver([&] {
      to.PostReceive(0, 1, absl::MakeSpan(got), 1);
      EXPECT_TRUE(Await(to, 1).ok());
    });
    from.PostSend(1, 1, sent, 1);
    EXPECT_TRUE(Await(from, 1).ok());
    receiver.join();
    EXPECT_EQ(sent, got);
  }

  std::vector<std::unique_ptr<TcpListener>> listeners_;
  MeshSpec spec_;
};

TEST_F(OfiTransportTest, WhatIsAskedForByNameAndNotThereIsSaidLoudly) {
  OfiOptions options;
  options.provider = "warp";
  const absl::Status unknown = Connect(0, options).status();
  EXPECT_TRUE(absl::IsNotFound(unknown)) << unknown;
  EXPECT_THAT(Text(unknown),
              AllOf(HasSubstr("'warp'"), HasSubstr("available: "), HasSubstr("tcp")));
  options.provider = "auto";
  options.rails = {"no-such-interface"};
  const absl::Status no_interface = Connect(0, options).status();
  EXPECT_TRUE(absl::IsNotFound(no_interface)) << no_interface;
  EXPECT_THAT(Text(no_interface),
              AllOf(HasSubstr("no-such-interface"), HasSubstr("interfaces"), HasSubstr("lo")));
  options = {};
  options.packets_per_peer = 2;
  EXPECT_TRUE(absl::IsInvalidArgument(Connect(0, options).status()));
}

TEST_F(OfiTransportTest, EfaWithoutADeviceIsAnErrorAndNeverAnotherProvider) {
  OfiOptions options;
  options.provider = "efa";
  const auto end = Connect(0, options, absl::Now() + absl::Seconds(1));
  if (access("/sys/class/infiniband", F_OK) == 0) GTEST_SKIP() << "there may be an EFA device";
  EXPECT_TRUE(absl::IsNotFound(end.status())) << end.status();
  EXPECT_THAT(Text(end.status()), HasSubstr("no EFA device"));
}

TEST_F(OfiTransportTest, AutoSaysWhatItTookAndWhy) {
  const auto ends = Form();
  ASSERT_NE(ends[0], nullptr);
  EXPECT_THAT(ends[0]->explanation(),
              AllOf(HasSubstr("libfabric "), HasSubstr("127.0.0.1"), HasSubstr("auto took")));
}

TEST_F(OfiTransportTest, RanksThatChoseDifferentlyAreTold) {
  OfiOptions one, two;
  two.rails = {"lo", "lo"};
  RunRanks(2, [&](Rank r) {
    const auto end = Connect(r, r == 0 ? one : two);
    EXPECT_FALSE(end.ok());
    // Who hangs up first leaves the other with less to say.
    if (absl::IsFailedPrecondition(end.status())) {
      EXPECT_THAT(Text(end.status()), AllOf(HasSubstr("1 "), HasSubstr("2 "), HasSubstr("rails")));
    }
    EXPECT_EQ(CulpritOf(end.status()), std::optional<Rank>(1 - r)) << end.status();
  });
}

TEST_F(OfiTransportTest, EveryProviderMovesBytesOrSaysThatItIsNotThere) {
  for (const char* provider : {"tcp", "net", "tcp;ofi_rxm", "shm"}) {
    SCOPED_TRACE(provider);
    OfiOptions options;
    options.provider = provider;
    ++spec_.epoch;
    MeshSpec alone = spec_;
    alone.members.resize(1);
    auto probe = OfiTransport::Connect(*listeners_[0], alone, options, Soon());
    ++spec_.epoch;
    if (!probe.ok()) {
      EXPECT_TRUE(absl::IsNotFound(probe.status())) << probe.status();
      continue;
    }
    const auto ends = Form(options);
    ASSERT_NE(ends[0], nullptr);
    ASSERT_NE(ends[1], nullptr);
    for (size_t size : {1, 1000, 100000, 3 << 20}) {
      std::vector<std::byte> sent(size), got(size);
      Transfer(*ends[0], *ends[1], sent, got);
    }
  }
}

TEST_F(OfiTransportTest, ARestartedMemberIsReachedAtItsNewAddress) {
  for (int round = 0; round < 3; ++round) {
    auto ends = Form();
    ASSERT_NE(ends[0], nullptr);
    ASSERT_NE(ends[1], nullptr);
    std::vector<std::byte> sent(200000), got(200000);
    Transfer(*ends[0], *ends[1], sent, got);
    ends[1]->Close(absl::AbortedError("restart"), std::nullopt);
    ++spec_.epoch;
    spec_.members[1].incarnation.value += 10;
  }
}

TEST_F(OfiTransportTest, TransfersWithinRegisteredMemory) {
  const auto ends = Form();
  ASSERT_NE(ends[0], nullptr);
  std::vector<std::byte> sent(2 << 20), got(2 << 20);
  EXPECT_TRUE(ends[0]->RegisterMemory(absl::MakeSpan(sent)).ok());
  EXPECT_TRUE(ends[1]->RegisterMemory(absl::MakeSpan(got)).ok());
  EXPECT_TRUE(
      absl::IsAlreadyExists(ends[1]->RegisterMemory(absl::MakeSpan(got).subspan(1000, 10))));
  Transfer(*ends[0], *ends[1], sent, got);
  EXPECT_TRUE(absl::IsNotFound(ends[1]->DeregisterMemory(absl::MakeSpan(got).first(10))));
  EXPECT_TRUE(ends[1]->DeregisterMemory(absl::MakeSpan(got)).ok());
  EXPECT_TRUE(ends[0]->DeregisterMemory(absl::MakeSpan(sent)).ok());
  Transfer(*ends[0], *ends[1], sent, got);
}

TEST_F(OfiTransportTest, WhatWasCompletedReachesAPeerThatWasNotDriving) {
  auto ends = Form();
  ASSERT_NE(ends[0], nullptr);
  const std::vector<std::byte> sent(5000, std::byte{42});
  for (uint64_t tag = 0; tag < 100; ++tag) ends[0]->PostSend(1, tag, sent, tag);
  ASSERT_TRUE(Await(*ends[0], 100).ok());
  ends[0].reset();  // Says goodbye, while rank 1 has not been driven once.
  std::vector<std::vector<std::byte>> got(100, std::vector<std::byte>(5000));
  for (uint64_t tag = 0; tag < 100; ++tag) {
    ends[1]->PostReceive(0, tag, absl::MakeSpan(got[tag]), tag);
  }
  EXPECT_TRUE(Await(*ends[1], 100).ok());
  for (const auto& bytes : got) EXPECT_EQ(bytes, sent);
}

TEST_F(OfiTransportTest, EarlyMessagesBeyondTheBudgetWaitAndArrive) {
  spec_.options.limits.unexpected_bytes = 20000;
  const auto ends = Form();
  ASSERT_NE(ends[0], nullptr);
  std::vector<std::vector<std::byte>> sent, got;
  for (size_t i = 0; i < 60; ++i) {
    sent.emplace_back(4000, static_cast<std::byte>(i));
    got.emplace_back(4000);
  }
  for (size_t i = 0; i < 60; ++i) ends[0]->PostSend(1, i, sent[i], i);
  std::vector<uint64_t> completed;
  ASSERT_TRUE(ends[0]->Poll(absl::Now() + absl::Milliseconds(20), {}, &completed).ok());
  EXPECT_LE(completed.size(), 5u);  // So many fit the budget.
  std::thread receiver([&] {
    for (size_t i = 60; i-- > 0;) ends[1]->PostReceive(0, i, absl::MakeSpan(got[i]), i);
    EXPECT_TRUE(Await(*ends[1], 60).ok());
  });
  EXPECT_TRUE(Await(*ends[0], 60 - completed.size()).ok());
  receiver.join();
  EXPECT_EQ(got, sent);
}

TEST(LockedMemoryTest, ALimitThatIsTooLowIsSaidWithBothNumbers) {
  EXPECT_TRUE(CheckLockedMemory(8 << 20, 8 << 20).ok());
  EXPECT_TRUE(CheckLockedMemory(8 << 20, ~uint64_t{0}).ok());
  const absl::Status low = CheckLockedMemory(9 << 20, 64 << 10);
  EXPECT_TRUE(absl::IsResourceExhausted(low));
  EXPECT_THAT(Text(low), AllOf(HasSubstr("64 KiB"), HasSubstr("9216 KiB"), HasSubstr("ulimit -l")));
}

}  // namespace
}  // namespace muster
