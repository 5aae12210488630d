#include "collectives/transport/ofi/ofi_connections.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <memory>

#include "absl/strings/numbers.h"
#include "collectives/transport/ofi/ofi_transport.h"
#include "tests/collectives/transport/mesh_fixture.h"
#include "tests/wait_until.h"

namespace muster {
namespace {

// What every kernel has beside reno; a system's own choice may be reno itself.
constexpr absl::string_view kOther = "cubic";

bool UseOther(int fd) {
  return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kOther.data(), kOther.size()) == 0;
}

// Connections as a library would make them.
class Listener {
 public:
  explicit Listener(const std::string& host)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), usable_(UseOther(fd_.get())) {
    const SocketAddress any = *ResolveBindHost(host, 0);
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<const sockaddr*>(&any.storage), any.length), 0);
    EXPECT_EQ(listen(fd_.get(), 8), 0);
    address_ = *LocalAddress(fd_.get());
  }
  bool usable() const { return usable_; }
  int fd() const { return fd_.get(); }
  const SocketAddress& address() const { return address_; }
  // The dialed end, the accepted end.
  std::pair<UniqueFd, UniqueFd> Connect() const {
    UniqueFd dialed(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_TRUE(UseOther(dialed.get()));
    EXPECT_EQ(connect(dialed.get(), reinterpret_cast<const sockaddr*>(&address_.storage),
                      address_.length),
              0);
    UniqueFd accepted(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_TRUE(accepted.valid());
    return {std::move(dialed), std::move(accepted)};
  }

 private:
  UniqueFd fd_;
  bool usable_;
  SocketAddress address_;
};

TEST(UnpaceConnectionsTest, TakesThoseAcceptedAtTheOwnEndAndDialedToTheirs) {
  const Listener own("127.0.0.1"), theirs("127.0.0.1"), others("127.0.0.1");
  if (!own.usable()) GTEST_SKIP() << "no " << kOther << " here";
  const auto to_own = own.Connect();
  const auto to_theirs = theirs.Connect();
  const auto to_others = others.Connect();
  EXPECT_EQ(UnpaceConnections(own.address(), theirs.address()), 2);
  EXPECT_EQ(*CongestionControl(to_own.second.get()), "reno");
  EXPECT_EQ(*CongestionControl(to_theirs.first.get()), "reno");
  // Not those of which the other end is ours, nor anybody else's, nor what listens.
  EXPECT_EQ(*CongestionControl(to_own.first.get()), kOther);
  EXPECT_EQ(*CongestionControl(to_theirs.second.get()), kOther);
  EXPECT_EQ(*CongestionControl(to_others.first.get()), kOther);
  EXPECT_EQ(*CongestionControl(to_others.second.get()), kOther);
  EXPECT_EQ(*CongestionControl(own.fd()), kOther);
}

// 127.0.0.2 is dialed from 127.0.0.1: two addresses, as of two hosts.
TEST(UnpaceConnectionsTest, LeavesWhatGoesToAnotherAddressAlone) {
  const Listener own("127.0.0.2");
  if (!own.usable()) GTEST_SKIP() << "no " << kOther << " here";
  const auto ends = own.Connect();
  EXPECT_EQ(UnpaceConnections(own.address(), own.address()), 0);
  EXPECT_EQ(*CongestionControl(ends.first.get()), kOther);
  EXPECT_EQ(*CongestionControl(ends.second.get()), kOther);
}

std::string Bytes(const SocketAddress& address) {
  return std::string(reinterpret_cast<const char*>(&address.storage), address.length);
}

TEST(OfiConnectionsTest, KnowsPeersAtTheSameAddressAloneAndSettlesEachOnce) {
  const std::string own = Bytes(*ParseAddress("10.0.0.1:5"));
  OfiConnections connections;
  connections.Add(1, own, Bytes(*ParseAddress("10.0.0.2:5")));
  connections.Add(2, own, "");
  connections.Add(3, own, own.substr(0, own.size() - 1));
  connections.Add(4, Bytes(*ParseAddress("[::1]:5")),
                  Bytes(*ParseAddress("[::1]:6")).substr(0, 20));
  connections.Add(5, "fi_shm://12", "fi_shm://13____");
  EXPECT_TRUE(connections.empty());
  connections.Add(6, own, Bytes(*ParseAddress("10.0.0.1:6")));
  connections.Add(7, Bytes(*ParseAddress("[::1]:5")), Bytes(*ParseAddress("[::1]:6")));
  connections.Settle(1);
  connections.Settle(6);
  EXPECT_FALSE(connections.empty());
  connections.Settle(7);
  EXPECT_TRUE(connections.empty());
}

// Of all connected TCP sockets of this process.
std::vector<std::string> CongestionControls() {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir("/proc/self/fd"), closedir);
  while (const dirent* entry = readdir(directory.get())) {
    int fd = -1;
    if (!absl::SimpleAtoi(entry->d_name, &fd) || !PeerAddress(fd).ok()) continue;
    const auto name = CongestionControl(fd);
    if (name.ok()) names.push_back(*name);
  }
  return names;
}

TEST(OfiConnectionsTest, AMeshWithinAHostIsNotPacedOnceItsRanksHaveTalked) {
  std::vector<std::unique_ptr<TcpListener>> listeners;
  MeshSpec spec;
  spec.token = "fleet/job";
  spec.epoch = 1;
  for (uint64_t i = 0; i < 3; ++i) {
    listeners.push_back(*TcpListener::Create());
    spec.members.push_back({Incarnation{i + 1}, listeners.back()->address()});
  }
  std::vector<std::unique_ptr<OfiTransport>> ends(3);
  RunRanks(3, [&](Rank r) {
    MeshSpec own = spec;
    own.rank = r;
    auto end = OfiTransport::Connect(*listeners[r], own, {}, absl::Now() + kTestPatience);
    ASSERT_TRUE(end.ok()) << end.status();
    ends[r] = *std::move(end);
    std::vector<std::byte> sent(100), got(200);
    for (Rank peer = 0; peer < 3; ++peer) {
      if (peer == r) continue;
      ends[r]->PostReceive(peer, 1, absl::MakeSpan(got).subspan(peer > r ? 100 : 0, 100), 1);
      ends[r]->PostSend(peer, 1, sent, 2);
    }
    std::vector<uint64_t> completed;
    const absl::Time limit = absl::Now() + kTestPatience;
    while (completed.size() < 4) {
      ASSERT_TRUE(ends[r]->Poll(limit, {}, &completed).ok());
      ASSERT_LT(absl::Now(), limit);
    }
  });
  ASSERT_NE(ends[0], nullptr);
  const std::vector<std::string> names = CongestionControls();
  // The provider's and our own for control: both ends of each.
  EXPECT_GE(names.size(), 12u);
  for (const std::string& name : names) EXPECT_EQ(name, "reno");
  EXPECT_THAT(ends[0]->explanation(), testing::HasSubstr("within this host use reno"));
}

}  // namespace
}  // namespace muster
