// What is particular to TCP: forming meshes, fencing, strangers on the port.
#include "collectives/transport/tcp_transport.h"

#include <poll.h>
#include <sys/socket.h>

#include "base/random.h"
#include "collectives/transport/culprit.h"
#include "collectives/transport/socket.h"
#include "collectives/transport/tcp_handshake.h"
#include "tests/collectives/transport/mesh_fixture.h"
#include "tests/wait_until.h"

namespace muster {
namespace {

using testing::AllOf;
using testing::HasSubstr;

absl::Time Soon() { return absl::Now() + absl::Seconds(20); }

// Two listeners and the spec of a mesh of both.
class TcpTransportTest : public testing::Test {
 protected:
  TcpTransportTest() {
    for (uint64_t i = 0; i < 2; ++i) {
      listeners_.push_back(*TcpListener::Create());
      spec_.members.push_back({Incarnation{i + 1}, listeners_.back()->address()});
    }
    spec_.token = "fleet/job";
    spec_.epoch = 5;
  }
  absl::StatusOr<std::unique_ptr<Transport>> Connect(Rank rank, MeshSpec spec,
                                                     absl::Time deadline = Soon()) {
    spec.rank = rank;
    return TcpTransport::Connect(*listeners_[rank], spec, deadline);
  }
  // Forms both ends of `spec`.
  void Form(const MeshSpec& spec) {
    RunRanks(2, [&](Rank r) {
      auto end = Connect(r, spec);
      EXPECT_TRUE(end.ok()) << end.status();
    });
  }
  // A raw connection to rank 0's port.
  UniqueFd Dial() {
    UniqueFd fd = *StartConnect(*ParseAddress(listeners_[0]->address()));
    AwaitReady(fd, POLLOUT);
    return fd;
  }
  static void AwaitReady(const UniqueFd& fd, int16_t events) {
    pollfd ready = {fd.get(), events, 0};
    EXPECT_EQ(poll(&ready, 1, PollTimeoutMs(Soon())), 1);
  }
  // Until rank 0 forms the epoch of `spec`: from then on it answers a stranger's hello.
  void AwaitForming(const MeshSpec& spec) {
    TcpHello hello = {.token_hash = StableHash(spec.token), .epoch = spec.epoch};
    UniqueFd stranger = Dial();
    const auto bytes = EncodeHello(hello);
    ASSERT_EQ(send(stranger.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), kHelloBytes);
    AwaitReady(stranger, POLLIN);
  }
  std::vector<std::unique_ptr<TcpListener>> listeners_;
  MeshSpec spec_;
};

std::string Text(const absl::Status& status) { return std::string(status.message()); }

TEST_F(TcpTransportTest, APortInUseAndAWrongAddressAreNamed) {
  TcpListenerOptions options;
  options.port = listeners_[0]->port();
  const auto taken = TcpListener::Create(options);
  EXPECT_TRUE(absl::IsUnavailable(taken.status()));
  EXPECT_THAT(Text(taken.status()), AllOf(HasSubstr(absl::StrCat(options.port)), HasSubstr("use")));
  options.bind = "no-such-interface";
  EXPECT_TRUE(absl::IsInvalidArgument(TcpListener::Create(options).status()));
  options = {};
  options.bind = "0.0.0.0";
  EXPECT_TRUE(absl::IsInvalidArgument(TcpListener::Create(options).status()));
  options.advertise = "lo";
  const auto any = TcpListener::Create(options);
  ASSERT_TRUE(any.ok()) << any.status();
  EXPECT_EQ((*any)->address(), absl::StrCat("127.0.0.1:", (*any)->port()));
}

TEST_F(TcpTransportTest, EpochsOnlyRise) {
  Form(spec_);
  EXPECT_TRUE(absl::IsFailedPrecondition(Connect(0, spec_).status()));
  MeshSpec older = spec_;
  older.epoch = 4;
  EXPECT_TRUE(absl::IsFailedPrecondition(Connect(0, older).status()));
  MeshSpec newer = spec_;
  newer.epoch = 6;
  Form(newer);
}

TEST_F(TcpTransportTest, AMemberLeftBehindInAnOlderEpochIsRefused) {
  MeshSpec newer = spec_;
  newer.epoch = 6;
  std::thread waiting([&] {
    auto end = Connect(0, newer, absl::Now() + absl::Milliseconds(400));
    EXPECT_TRUE(absl::IsDeadlineExceeded(end.status())) << end.status();
    EXPECT_THAT(Text(end.status()), HasSubstr("rank 1"));
    EXPECT_EQ(CulpritOf(end.status()), std::optional<Rank>(1));
  });
  AwaitForming(newer);
  const auto stale = Connect(1, spec_);
  EXPECT_TRUE(absl::IsFailedPrecondition(stale.status())) << stale.status();
  EXPECT_THAT(Text(stale.status()), HasSubstr("epoch 5 is over"));
  waiting.join();
}

TEST_F(TcpTransportTest, AnEarlyDialerIsParkedUntilThisProcessIsReady) {
  std::thread early([&] {
    auto end = Connect(1, spec_);
    EXPECT_TRUE(end.ok()) << end.status();
  });
  LetTimePass(absl::Milliseconds(50), "lets the dialer come first, most often");
  auto end = Connect(0, spec_);
  EXPECT_TRUE(end.ok()) << end.status();
  early.join();
}

TEST_F(TcpTransportTest, AnotherIncarnationOrShapeIsRefusedWithTheReason) {
  struct Case {
    const char* text;
    std::function<void(MeshSpec&)> change;
  };
  const std::vector<Case> cases = {
      {"incarnation", [](MeshSpec& s) { s.members[1].incarnation = Incarnation{99}; }},
      {"incarnation", [](MeshSpec& s) { s.members[0].incarnation = Incarnation{99}; }},
      {"channels", [](MeshSpec& s) { s.options.channels = 2; }},
      {"of 3",
       [](MeshSpec& s) {
         s.members.push_back({Incarnation{3}, s.members[1].address});
       }},
  };
  for (const Case& changed : cases) {
    ++spec_.epoch;
    std::thread waiting([&] { EXPECT_FALSE(Connect(0, spec_).ok()); });
    AwaitForming(spec_);
    MeshSpec other = spec_;
    changed.change(other);
    const auto refused = Connect(1, other);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused.status())) << refused.status();
    EXPECT_THAT(Text(refused.status()), HasSubstr(changed.text));
    listeners_[0]->CancelThrough(spec_.epoch);
    waiting.join();
  }
}

TEST_F(TcpTransportTest, AnotherJobsConnectionNeverGetsIn) {
  MeshSpec other = spec_;
  other.token = "fleet/other";
  std::thread stranger(
      [&] { EXPECT_FALSE(Connect(1, other, absl::Now() + absl::Milliseconds(200)).ok()); });
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(Connect(0, spec_, absl::Now() + absl::Milliseconds(200)).status()));
  stranger.join();
}

TEST_F(TcpTransportTest, CancelThroughEndsAConnectAndFencesTheEpoch) {
  std::thread waiting([&] {
    const auto end = Connect(0, spec_);
    EXPECT_TRUE(absl::IsCancelled(end.status())) << end.status();
  });
  AwaitForming(spec_);
  listeners_[0]->CancelThrough(spec_.epoch);
  waiting.join();
  EXPECT_TRUE(absl::IsFailedPrecondition(Connect(1, spec_).status()));
  ++spec_.epoch;
  Form(spec_);
}

TEST_F(TcpTransportTest, ADeadPortFailsAtOnceAndNamesTheRank) {
  listeners_[0].reset();
  const auto end = Connect(1, spec_, absl::InfiniteFuture());
  EXPECT_TRUE(absl::IsUnavailable(end.status())) << end.status();
  EXPECT_THAT(Text(end.status()), HasSubstr("rank 0"));
  EXPECT_EQ(CulpritOf(end.status()), std::optional<Rank>(0));
}

TEST_F(TcpTransportTest, StrangersOnThePortDisturbNobody) {
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 300; ++i) {  // More than may be in handshake at a time.
    strangers.push_back(*StartConnect(*ParseAddress(listeners_[0]->address())));
  }
  UniqueFd talker = Dial();
  const std::string request = "GET / HTTP/1.1\r\nHost: example\r\n\r\n" + std::string(200, 'x');
  EXPECT_GT(send(talker.get(), request.data(), request.size(), MSG_NOSIGNAL), 0);
  char answer[16];
  AwaitReady(talker, POLLIN);
  EXPECT_LE(recv(talker.get(), answer, sizeof(answer), MSG_DONTWAIT), 0);  // Hung up on.
  Form(spec_);
}

TEST_F(TcpTransportTest, AnotherProtocolVersionIsToldSo) {
  TcpHello hello;
  hello.epoch = 5;
  hello.from_rank = 1;
  hello.to_rank = 0;
  hello.world_size = 2;
  hello.channels = 1;
  auto bytes = EncodeHello(hello);
  bytes[8] = std::byte{200};
  UniqueFd fd = Dial();
  ASSERT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), kHelloBytes);
  std::array<std::byte, kAnswerBytes> answer;
  AwaitReady(fd, POLLIN);
  ASSERT_EQ(recv(fd.get(), answer.data(), answer.size(), MSG_DONTWAIT), kAnswerBytes);
  EXPECT_EQ(DecodeAnswer(answer)->verdict, TcpVerdict::kVersion);
}

TEST_F(TcpTransportTest, WrongSpecsAreRefused) {
  const auto refused = [this](auto change) {
    MeshSpec spec = spec_;
    change(spec);
    return absl::IsInvalidArgument(
        TcpTransport::Connect(*listeners_[0], spec, absl::InfiniteFuture()).status());
  };
  EXPECT_TRUE(refused([](MeshSpec& s) { s.epoch = 0; }));
  EXPECT_TRUE(refused([](MeshSpec& s) { s.rank = 2; }));
  EXPECT_TRUE(refused([](MeshSpec& s) { s.members.clear(); }));
  EXPECT_TRUE(refused([](MeshSpec& s) { s.options.channels = -1; }));
  EXPECT_TRUE(refused([](MeshSpec& s) { s.members[1].incarnation = {}; }));
  EXPECT_TRUE(refused([](MeshSpec& s) {
    s.rank = 1;
    s.members[0].address = "nonsense";
  }));
}

}  // namespace
}  // namespace muster
