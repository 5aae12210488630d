#include "collectives/transport/advertise.h"

#include <string>
#include <vector>

#include "collectives/transport/tcp_listener.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<SocketAddress> Addresses(const std::vector<std::string>& hosts) {
  std::vector<SocketAddress> addresses;
  for (const std::string& host : hosts) addresses.push_back(*ResolveBindHost(host, 0));
  return addresses;
}

// Where a worker that is bound to `bound` says it is, if its name stands for `hosts`.
std::string Chosen(const std::string& bound, const std::vector<std::string>& hosts) {
  const auto address = ChooseAdvertised("node-7", Addresses(hosts), *ResolveBindHost(bound, 4711));
  return address.ok() ? address->ToString() : std::string(address.status().message());
}

TEST(AdvertiseTest, ANameStandsForTheFirstAddressThatPeersReach) {
  EXPECT_EQ(Chosen("0.0.0.0", {"127.0.1.1", "10.0.0.7", "10.0.0.8"}), "10.0.0.7:4711");
  EXPECT_EQ(Chosen("10.0.0.7", {"fd00::7", "10.0.0.7"}), "10.0.0.7:4711");
  EXPECT_EQ(Chosen("fd00::7", {"10.0.0.7", "::1", "fd00::7"}), "[fd00::7]:4711");
  EXPECT_EQ(Chosen("::", {"::1", "10.0.0.7", "fd00::7"}), "10.0.0.7:4711");  // takes both
}

TEST(AdvertiseTest, WhereTheNameStandsForSeveralInterfacesTheBoundOneIsTaken) {
  // As where a container bridge (docker0) comes first.
  EXPECT_EQ(Chosen("10.0.0.7", {"172.17.0.1", "10.0.0.7"}), "10.0.0.7:4711");
  EXPECT_EQ(Chosen("fd00::7", {"172.17.0.1", "fd00:17::1", "fd00::7"}), "[fd00::7]:4711");
  // Behind an address translation the bound one is not among them.
  EXPECT_EQ(Chosen("10.0.0.7", {"203.0.113.9"}), "203.0.113.9:4711");
}

TEST(AdvertiseTest, OnLoopbackALoopbackAddressIsRight) {
  EXPECT_EQ(Chosen("127.0.0.1", {"::1", "127.0.0.1"}), "127.0.0.1:4711");
  EXPECT_EQ(Chosen("::1", {"127.0.0.1", "::1"}), "[::1]:4711");
}

TEST(AdvertiseTest, ANameThatStandsOnlyForLoopbackIsRefused) {
  for (const char* bound : {"0.0.0.0", "10.0.0.7", "::"}) {
    EXPECT_THAT(Chosen(bound, {"127.0.1.1", "::1"}),
                AllOf(HasSubstr("'node-7'"), HasSubstr("only for a loopback address"),
                      HasSubstr("127.0.1.1, ::1")));
  }
}

TEST(AdvertiseTest, ANameOfAnotherIpVersionIsRefused) {
  EXPECT_THAT(Chosen("0.0.0.0", {"fd00::7", "127.0.0.1"}),
              AllOf(HasSubstr("'node-7'"), HasSubstr("fd00::7"), HasSubstr("IP version")));
}

TEST(AdvertiseTest, AddressesAndInterfacesAreTakenAsTheyAre) {
  const SocketAddress bound = *ResolveBindHost("0.0.0.0", 4711);
  EXPECT_EQ(ResolveAdvertised("127.0.0.1", bound)->ToString(), "127.0.0.1:4711");
  EXPECT_EQ(ResolveAdvertised("lo", bound)->ToString(), "127.0.0.1:4711");
  EXPECT_EQ(ResolveAdvertised("203.0.113.9", bound)->ToString(), "203.0.113.9:4711");
}

TEST(AdvertiseTest, NamesAreLookedUp) {
  const SocketAddress bound = *ResolveBindHost("127.0.0.1", 4711);
  EXPECT_EQ(ResolveAdvertised("localhost", bound)->ToString(), "127.0.0.1:4711");
  const std::string nobody(70, 'x');  // too long for a name: known without asking anybody
  const absl::Status status = ResolveAdvertised(nobody, bound).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(nobody));
}

TEST(AdvertiseTest, AListenerSaysWhatItsNameStandsFor) {
  TcpListenerOptions options;
  options.advertise = "localhost";
  const auto listener = TcpListener::Create(options);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_EQ((*listener)->address(), "127.0.0.1:" + std::to_string((*listener)->port()));
  options.bind = "0.0.0.0";
  EXPECT_TRUE(absl::IsInvalidArgument(TcpListener::Create(options).status()));
}

}  // namespace
}  // namespace muster
