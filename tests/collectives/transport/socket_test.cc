#include "collectives/transport/socket.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <string>
#include <utility>

namespace muster {
namespace {

struct Ends {
  UniqueFd dialed;
  UniqueFd accepted;
};

Ends Connect(const std::string& host) {
  const auto wanted = ResolveBindHost(host, 0);
  EXPECT_TRUE(wanted.ok()) << wanted.status();
  const auto listening = ListenOn(*wanted);
  EXPECT_TRUE(listening.ok()) << listening.status();
  auto dialed = StartConnect(*LocalAddress(listening->get()));
  EXPECT_TRUE(dialed.ok()) << dialed.status();
  pollfd waiting = {listening->get(), POLLIN, 0};
  EXPECT_EQ(poll(&waiting, 1, 10'000), 1);
  auto accepted = AcceptFrom(listening->get());
  EXPECT_TRUE(accepted.ok()) << accepted.status();
  return {*std::move(dialed), *std::move(accepted)};
}

TEST(SocketTest, ConnectionsWithinAHostAreNotPaced) {
  const Ends ends = Connect("127.0.0.1");
  EXPECT_EQ(*CongestionControl(ends.dialed.get()), "reno");
  EXPECT_EQ(*CongestionControl(ends.accepted.get()), "reno");
}

// 127.0.0.2 is dialed from 127.0.0.1: to the kernel's eyes two addresses, as of two hosts.
TEST(SocketTest, ConnectionsBetweenAddressesKeepTheSystemsCongestionControl) {
  const UniqueFd fresh(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const std::string usual = *CongestionControl(fresh.get());
  const Ends ends = Connect("127.0.0.2");
  EXPECT_EQ(*CongestionControl(ends.dialed.get()), usual);
  EXPECT_EQ(*CongestionControl(ends.accepted.get()), usual);
}

TEST(SocketTest, AcceptSaysThatNobodyWaits) {
  const auto listening = ListenOn(*ResolveBindHost("127.0.0.1", 0));
  ASSERT_TRUE(listening.ok()) << listening.status();
  EXPECT_EQ(AcceptFrom(listening->get()).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace muster
