#include "proto/rpc/address.h"

#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

TEST(ParseHostPort, RoundTrips) {
  for (const char* text : {"127.0.0.1:7070", "localhost:0", "[::1]:65535", "[fe80::1%eth0]:1",
                           "node-3.example.org:22", "eth0:0"}) {
    const absl::StatusOr<HostPort> parsed = ParseHostPort(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(ToString(*parsed), text);
  }
  EXPECT_EQ(*ParseHostPort("[::1]:7"), (HostPort{.host = "::1", .port = 7}));
}

TEST(ParseHostPort, SaysWhatIsWrong) {
  const auto why = [](const std::string& text) {
    const absl::Status status = ParseHostPort(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    return std::string(status.message());
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(why(""), HasSubstr("has no port; expected host:port, for example"));
  EXPECT_THAT(why("localhost"), HasSubstr("\"localhost\": has no port"));
  EXPECT_THAT(why(":80"), HasSubstr("has no host"));
  EXPECT_THAT(why("::1:80"), HasSubstr("an IPv6 address needs brackets"));
  EXPECT_THAT(why("[::1:80"), HasSubstr("no closing bracket"));
  EXPECT_THAT(why("[::1]80"), HasSubstr("has no port"));
  EXPECT_THAT(why("[host]:80"), HasSubstr("no IPv6 address in the brackets"));
  EXPECT_THAT(why("a b:80"), HasSubstr("unexpected characters"));
  for (const char* port : {"x", "", "-1", "65536", "1e3", "+5", " 5", "99999999999999"}) {
    EXPECT_THAT(why(std::string("host:") + port), HasSubstr("not a number from 0 to 65535"));
  }
  EXPECT_THAT(why(std::string(1'000, 'x')), HasSubstr("longer than 300 bytes"));
}

TEST(ParseAddressToDial, WantsAPort) {
  EXPECT_EQ(ParseAddressToDial("h:1").value(), (HostPort{"h", 1}));
  EXPECT_EQ(std::string(ParseAddressToDial("h:0").status().message()),
            "address \"h:0\": has port 0, where nobody is; expected host:port, for example "
            "127.0.0.1:7070 or [::1]:7070");
  EXPECT_TRUE(absl::IsInvalidArgument(ParseAddressToDial("h").status()));
}

TEST(IsThisMachine, KnowsItselfWithoutANameServer) {
  for (const char* host : {"localhost", "LOCALHOST", "127.0.0.1", "127.8.9.1", "::1", "0.0.0.0",
                           "::", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(IsThisMachine(host)) << host;
  }
  char name[256] = {};
  ASSERT_EQ(gethostname(name, sizeof(name) - 1), 0);
  EXPECT_TRUE(IsThisMachine(name)) << name;
  // Of the ranges for documentation (RFC 5737, RFC 3849), and a name that nobody has (RFC 6761).
  for (const char* host : {"192.0.2.1", "2001:db8::1", "nohost.invalid", ""}) {
    EXPECT_FALSE(IsThisMachine(host)) << host;
  }
}

TEST(ProbeListen, FindsFreeAndMissingAddresses) {
  EXPECT_TRUE(ProbeListen({.host = "127.0.0.1", .port = 0}).ok());
  // Of the range for documentation (RFC 5737): no machine has it.
  const absl::Status status = ProbeListen({.host = "192.0.2.1", .port = 0});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(::testing::StartsWith("cannot listen on 192.0.2.1:0: "),
                               ::testing::HasSubstr("it must be an address of this host")));
}

}  // namespace
}  // namespace muster
