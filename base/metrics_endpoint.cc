#include "base/metrics_endpoint.h"

#include <exception>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "prometheus/exposer.h"
#include "prometheus/registry.h"

namespace muster {
namespace {

// Scrapes are rare and short, but each connection that says nothing (a port scan, a balancer's
// probe) holds a thread until the time for a request is over: the library's 30 s and 2 threads
// would leave two such connections in the way of every scrape.
constexpr char kServerThreads[] = "8";
constexpr char kRequestTimeoutMs[] = "1000";

absl::Status CheckAddress(absl::string_view address) {
  const size_t colon = address.rfind(':');
  int port = 0;
  const bool has_port = colon != absl::string_view::npos && colon > 0 &&
                        absl::SimpleAtoi(address.substr(colon + 1), &port) && port >= 0 &&
                        port <= 65535;
  const absl::string_view host = address.substr(0, has_port ? colon : 0);
  const bool bracketed = absl::StartsWith(host, "[") && absl::EndsWith(host, "]");
  // The server underneath gives commas and trailing letters a meaning of its own.
  const bool plain = host.find_first_not_of("0123456789.") == absl::string_view::npos ||
                     (bracketed && host.find_first_not_of("[]0123456789abcdefABCDEF:.") ==
                                       absl::string_view::npos);
  if (has_port && plain) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("metrics address \"", address,
                   "\": expected an IP address and a port from 0 to 65535, as in 0.0.0.0:9090 or "
                   "[::]:9090"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(
    const std::string& bind_address) {
  const absl::Status address_status = CheckAddress(bind_address);
  if (!address_status.ok()) return address_status;
  auto registry = std::make_shared<prometheus::Registry>();
  std::unique_ptr<prometheus::Exposer> exposer;
  std::vector<int> ports;
  try {
    exposer = std::make_unique<prometheus::Exposer>(
        std::vector<std::string>{"listening_ports", bind_address, "num_threads", kServerThreads,
                                 "request_timeout_ms", kRequestTimeoutMs});
    exposer->RegisterCollectable(registry);
    ports = exposer->GetListeningPorts();
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics on ", bind_address, ": ", error.what(),
                     "; the port may be in use: choose another one, or port 0 for any free one"));
  }
  MUSTER_CHECK_EQ(ports.size(), 1u);
  return std::unique_ptr<MetricsEndpoint>(
      new MetricsEndpoint(std::move(registry), std::move(exposer), ports[0]));
}

MetricsEndpoint::MetricsEndpoint(std::shared_ptr<prometheus::Registry> registry,
                                 std::unique_ptr<prometheus::Exposer> exposer, int port)
    : registry_(std::move(registry)), exposer_(std::move(exposer)), port_(port) {}

MetricsEndpoint::~MetricsEndpoint() = default;

}  // namespace muster
