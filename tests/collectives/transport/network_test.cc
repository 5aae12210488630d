// Networks as they are: several interfaces, both IP versions, no port left, peers that never come.
#include <atomic>
#include <fstream>

#include "absl/strings/match.h"
#include "collectives/transport/culprit.h"
#include "collectives/transport/tcp_mesh.h"
#include "tests/collectives/transport/mesh_fixture.h"
#include "tests/collectives/transport/network_namespace.h"
#include "tests/wait_until.h"

namespace muster {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

std::unique_ptr<TcpListener> ListenOnHost(const std::string& host) {
  TcpListenerOptions options;
  options.bind = host;
  auto listener = TcpListener::Create(options);
  EXPECT_TRUE(listener.ok()) << listener.status();
  return listener.ok() ? *std::move(listener) : nullptr;
}

MeshSpec SpecOf(const std::vector<std::unique_ptr<TcpListener>>& listeners) {
  MeshSpec spec;
  spec.token = "network-test";
  spec.epoch = 1;
  for (const auto& listener : listeners) {
    spec.members.push_back({Incarnation{spec.members.size() + 1}, listener->address()});
  }
  return spec;
}

// One byte goes around all ranks of a mesh over `listeners`.
void ExpectMeshWorks(MeshKind kind, const std::vector<std::unique_ptr<TcpListener>>& listeners) {
  const MeshSpec spec = SpecOf(listeners);
  const int size = static_cast<int>(listeners.size());
  RunRanks(size, [&](Rank r) {
    MeshSpec mine = spec;
    mine.rank = r;
    auto end = ConnectEnd(kind, *listeners[r], mine, SharedArena::Create().value(),
                          absl::Now() + kTestPatience);
    ASSERT_TRUE(end.ok()) << end.status();
    std::byte sent{static_cast<unsigned char>(40 + r)}, got{0};
    (*end)->PostSend((r + 1) % size, 1, absl::MakeConstSpan(&sent, 1), 1);
    (*end)->PostReceive((r + size - 1) % size, 1, absl::MakeSpan(&got, 1), 2);
    std::vector<uint64_t> completed;
    const absl::Time limit = absl::Now() + kTestPatience;
    while (completed.size() < 2 && absl::Now() < limit) {
      ASSERT_TRUE((*end)->Poll(limit, absl::ZeroDuration(), &completed).ok());
    }
    EXPECT_EQ(static_cast<int>(got), 40 + (r + size - 1) % size);
  });
}

class NetworkTest : public testing::TestWithParam<MeshKind> {};

TEST_P(NetworkTest, RanksAtIpv4AndAtIpv6AddressesMeet) {
  std::vector<std::unique_ptr<TcpListener>> listeners;
  for (const char* host : {"127.0.0.1", "::1", "127.0.0.1", "::1"}) {
    listeners.push_back(ListenOnHost(host));
    ASSERT_NE(listeners.back(), nullptr);
  }
  if (GetParam() != MeshKind::kOfi) return ExpectMeshWorks(GetParam(), listeners);
  // An endpoint of libfabric is of one version: said, not hung. Of one version they meet.
  const MeshSpec spec = SpecOf(listeners);
  std::atomic<bool> told{false};
  RunRanks(4, [&](Rank r) {
    MeshSpec mine = spec;
    mine.rank = r;
    const auto end =
        ConnectEnd(GetParam(), *listeners[r], mine, nullptr, absl::Now() + kTestPatience);
    EXPECT_TRUE(absl::IsUnavailable(end.status())) << end.status();
    // Who finds out first says so; the others may only find it gone.
    if (absl::StrContains(end.status().message(), "inserting")) {
      EXPECT_THAT(Text(end.status()), HasSubstr("all at IPv6 addresses"));
      told = true;
    }
  });
  EXPECT_TRUE(told);
}

TEST_P(NetworkTest, ARankThatNeverComesIsNamedWhenTheTimeIsOver) {
  std::vector<std::unique_ptr<TcpListener>> listeners;
  for (int i = 0; i < 3; ++i) listeners.push_back(ListenOnHost("127.0.0.1"));
  const MeshSpec spec = SpecOf(listeners);
  RunRanks(2, [&](Rank r) {
    MeshSpec mine = spec;
    mine.rank = r;
    const auto end = ConnectEnd(GetParam(), *listeners[r], mine, SharedArena::Create().value(),
                                absl::Now() + absl::Milliseconds(400));
    EXPECT_TRUE(absl::IsDeadlineExceeded(end.status())) << end.status();
    EXPECT_THAT(Text(end.status()), HasSubstr("rank 2"));
    EXPECT_EQ(CulpritOf(end.status()), std::optional<Rank>(2));
  });
}

// Ranks that have more to say to each other once they are connected.
class SilentRankTest : public testing::TestWithParam<MeshKind> {};

// Connected, then not a word: as a process that is stopped while it starts.
TEST_P(SilentRankTest, WhileConnectingItIsNamedWhenTheTimeIsOver) {
  std::vector<std::unique_ptr<TcpListener>> listeners;
  for (int i = 0; i < 2; ++i) listeners.push_back(ListenOnHost("127.0.0.1"));
  MeshSpec spec = SpecOf(listeners);
  spec.options.channels = 1;
  std::vector<TcpPeerSockets> silent;
  RunRanks(2, [&](Rank r) {
    MeshSpec mine = spec;
    mine.rank = r;
    if (r == 1) {
      auto sockets = ConnectMeshSockets(*listeners[r], mine, absl::Now() + kTestPatience);
      ASSERT_TRUE(sockets.ok()) << sockets.status();
      silent = *std::move(sockets);
      return;
    }
    const auto end = ConnectEnd(GetParam(), *listeners[r], mine, SharedArena::Create().value(),
                                absl::Now() + absl::Milliseconds(400));
    EXPECT_TRUE(absl::IsDeadlineExceeded(end.status())) << end.status();
    EXPECT_THAT(Text(end.status()), HasSubstr("rank 1"));
    EXPECT_EQ(CulpritOf(end.status()), std::optional<Rank>(1));
  });
}

TEST_P(NetworkTest, OfSeveralInterfacesTheOneThatIsNamedIsTaken) {
  const std::string why_not = InNewNetwork([] {
    // The wrong one comes first, in every order there is.
    ASSERT_TRUE(
        Shell("ip link add docker0 type bridge && ip addr add 172.17.0.1/16 dev docker0 && "
              "ip link set docker0 up"));
    ASSERT_TRUE(
        Shell("ip link add net7 type bridge && ip addr add 192.168.7.7/24 dev net7 && "
              "ip link set net7 up"));
    std::vector<std::unique_ptr<TcpListener>> listeners;
    for (int i = 0; i < 2; ++i) {
      listeners.push_back(ListenOnHost("net7"));
      ASSERT_NE(listeners.back(), nullptr);
      EXPECT_THAT(listeners.back()->address(), testing::StartsWith("192.168.7.7:"));
    }
    ExpectMeshWorks(GetParam(), listeners);
    TcpListenerOptions everywhere;
    everywhere.bind = "0.0.0.0";
    everywhere.advertise = "net7";
    EXPECT_THAT((*TcpListener::Create(everywhere))->address(), testing::StartsWith("192.168.7.7:"));
    if (GetParam() == MeshKind::kOfi) {
      MeshSpec alone = SpecOf(listeners);
      alone.epoch = 2;
      alone.members.resize(1);
      auto end = OfiTransport::Connect(*listeners[0], alone, {}, absl::Now() + absl::Seconds(20));
      ASSERT_TRUE(end.ok()) << end.status();
      EXPECT_THAT((*end)->explanation(), HasSubstr("192.168.7.7"));
    }
  });
  if (!why_not.empty()) GTEST_SKIP() << why_not;
}

INSTANTIATE_TEST_SUITE_P(Transports, SilentRankTest,
                         testing::Values(MeshKind::kShm, MeshKind::kOfi),
                         [](const auto& info) { return NameOf(info.param); });
INSTANTIATE_TEST_SUITE_P(Transports, NetworkTest,
                         testing::Values(MeshKind::kTcp, MeshKind::kShm, MeshKind::kOfi),
                         [](const auto& info) { return NameOf(info.param); });

TEST(PortsTest, WhenNoneIsLeftThatIsSaidAndOneThatIsFreedServes) {
  const std::string why_not = InNewNetwork([] {
    // Of the network namespace of this thread.
    std::ofstream("/proc/sys/net/ipv4/ip_local_port_range") << "40000 40003";
    std::vector<std::unique_ptr<TcpListener>> listeners;
    absl::Status status;
    while (status.ok() && listeners.size() < 10) {
      auto listener = TcpListener::Create();
      status = listener.status();
      if (listener.ok()) listeners.push_back(*std::move(listener));
    }
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(Text(status), AllOf(HasSubstr("no port is free"), HasSubstr("port_range")));
    ASSERT_EQ(listeners.size(), 4u);
    // No port is left to dial from, either.
    MeshSpec spec = SpecOf(listeners);
    spec.rank = 3;
    const auto end = TcpTransport::Connect(*listeners[3], spec, absl::Now() + absl::Seconds(20));
    EXPECT_TRUE(absl::IsUnavailable(end.status())) << end.status();
    EXPECT_THAT(Text(end.status()), AllOf(HasSubstr("rank 0"), HasSubstr("no port is free")));
    listeners.pop_back();
    EXPECT_TRUE(TcpListener::Create().ok());
  });
  if (!why_not.empty()) GTEST_SKIP() << why_not;
}

// A port is chosen by binding it: from then on nobody else gets it, so there is no moment between.
TEST(PortsTest, AChosenPortIsHeldFromTheMomentOfItsChoice) {
  std::vector<std::unique_ptr<TcpListener>> listeners;
  for (int i = 0; i < 50; ++i) {
    listeners.push_back(*TcpListener::Create());
    TcpListenerOptions same;
    same.port = listeners.back()->port();
    const auto taken = TcpListener::Create(same);
    EXPECT_TRUE(absl::IsUnavailable(taken.status())) << taken.status();
    EXPECT_THAT(Text(taken.status()), HasSubstr(absl::StrCat(same.port)));
  }
}

}  // namespace
}  // namespace muster
