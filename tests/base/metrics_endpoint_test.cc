#include "base/metrics_endpoint.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/registry.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

// A connection to 127.0.0.1:port; reading from it gives up after ten seconds.
int Dial(int port) {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_GE(descriptor, 0);
  const timeval patience = {.tv_sec = 10, .tv_usec = 0};
  EXPECT_EQ(setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return descriptor;
}

// What an HTTP/1.0 GET of /metrics on 127.0.0.1:port answers, headers included.
std::string Scrape(int port) {
  const int descriptor = Dial(port);
  const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
  EXPECT_EQ(send(descriptor, request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t count; (count = recv(descriptor, buffer, sizeof(buffer), 0)) > 0;) {
    answer.append(buffer, static_cast<size_t>(count));
  }
  close(descriptor);
  return answer;
}

TEST(MetricsEndpointTest, ServesWhatTheRegistryHolds) {
  auto endpoint = MetricsEndpoint::Start("127.0.0.1:0");
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  EXPECT_GT((*endpoint)->port(), 0);
  auto& counter = prometheus::BuildCounter()
                      .Name("muster_steps_total")
                      .Help("Steps applied.")
                      .Register((*endpoint)->registry())
                      .Add({{"job", "j"}});
  counter.Increment(3);
  auto& gauge = prometheus::BuildGauge()
                    .Name("muster_world_size")
                    .Help("Members.")
                    .Register((*endpoint)->registry())
                    .Add({});
  gauge.Set(4);
  const std::string answer = Scrape((*endpoint)->port());
  EXPECT_THAT(answer, HasSubstr("200 OK"));
  EXPECT_THAT(answer, HasSubstr("# TYPE muster_steps_total counter"));
  EXPECT_THAT(answer, HasSubstr("muster_steps_total{job=\"j\"} 3"));
  EXPECT_THAT(answer, HasSubstr("muster_world_size 4"));
  counter.Increment();
  EXPECT_THAT(Scrape((*endpoint)->port()), HasSubstr("muster_steps_total{job=\"j\"} 4"));
}

TEST(MetricsEndpointTest, SilentConnectionsDoNotKeepAScrapeOut) {
  auto endpoint = MetricsEndpoint::Start("127.0.0.1:0");
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  std::vector<int> silent;
  for (int i = 0; i < 16; ++i) silent.push_back(Dial((*endpoint)->port()));
  EXPECT_THAT(Scrape((*endpoint)->port()), HasSubstr("200 OK"));
  for (const int descriptor : silent) close(descriptor);
}

TEST(MetricsEndpointTest, APortInUseIsAnErrorThatNamesIt) {
  const auto first = MetricsEndpoint::Start("127.0.0.1:0");
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string address = "127.0.0.1:" + std::to_string((*first)->port());
  const absl::Status second = MetricsEndpoint::Start(address).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.message()), HasSubstr(address));
}

TEST(MetricsEndpointTest, APortIsFreeAgainAfterTheEnd) {
  auto first = MetricsEndpoint::Start("127.0.0.1:0");
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string address = "127.0.0.1:" + std::to_string((*first)->port());
  first->reset();
  EXPECT_TRUE(MetricsEndpoint::Start(address).ok());
}

TEST(MetricsEndpointTest, AddressesOfAnotherFormAreRefused) {
  for (const char* address :
       {"", "9090", ":9090", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1",
        "127.0.0.1:x", "127.0.0.1:1,127.0.0.1:2", "example.org:80", "127.0.0.1:443s", "[::1:80"}) {
    const absl::Status status = MetricsEndpoint::Start(address).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << address << ": " << status;
  }
}

TEST(MetricsEndpointTest, AnAddressOfAnotherHostCannotBeBound) {
  // 192.0.2.0/24 is reserved for documentation (RFC 5737).
  const absl::Status status = MetricsEndpoint::Start("192.0.2.1:0").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("192.0.2.1:0"));
}

}  // namespace
}  // namespace muster
