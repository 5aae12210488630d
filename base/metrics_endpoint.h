// Serves a daemon's metrics over HTTP in Prometheus' text format, at /metrics.
//
// Thread-safe. The endpoint owns the registry: register metrics on registry() and update them from
// any thread; a scrape reads them from the endpoint's own threads.
#ifndef MUSTER_BASE_METRICS_ENDPOINT_H_
#define MUSTER_BASE_METRICS_ENDPOINT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace prometheus {
class Exposer;
class Registry;
}  // namespace prometheus

namespace muster {

class MetricsEndpoint {
 public:
  // `bind_address` is "host:port", with an IPv4 address, or an IPv6 address in brackets; port 0
  // takes a free one. INVALID_ARGUMENT for an address of another form, UNAVAILABLE if it cannot be
  // bound (for instance because the port is in use). Both name the address.
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(const std::string& bind_address);

  // Stops serving; waits for a scrape that is under way.
  ~MetricsEndpoint();

  // Include "prometheus/registry.h" and the header of the metric to use it.
  prometheus::Registry& registry() { return *registry_; }

  // The port that was bound.
  int port() const { return port_; }

 private:
  MetricsEndpoint(std::shared_ptr<prometheus::Registry> registry,
                  std::unique_ptr<prometheus::Exposer> exposer, int port);

  const std::shared_ptr<prometheus::Registry> registry_;
  const std::unique_ptr<prometheus::Exposer> exposer_;
  const int port_;
};

}  // namespace muster

#endif  // MUSTER_BASE_METRICS_ENDPOINT_H_
