// A parameter server that serves: muster.v1.ParameterServer, the standard health service and
// reflection, on one port. Thread-safe.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_RPC_PARAMETER_SERVER_H_
#define MUSTER_SERVER_PARAMETER_SERVER_RPC_PARAMETER_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/log.h"

namespace prometheus {
class Registry;
}  // namespace prometheus

namespace muster {

struct ParameterServerOptions {
  std::string listen_address = "127.0.0.1:7071";  // host:port; port 0 takes a free one

  // Of all tables: parameters, optimizer state, sums, and what is held of pushes and for readers.
  int64_t memory_bytes = int64_t{4} << 30;
  // Of one table: pushes before their turn, and old versions that are still read.
  int64_t held_bytes = int64_t{1} << 30;
  // Requests read ahead, beyond one message for each call (docs/design.md, Parameter server); and
  // as much again for answers that are copies: so a server whose tables fill their memory can be
  // read.
  int64_t in_flight_bytes = int64_t{256} << 20;
  // What gRPC itself may take; calls fail with RESOURCE_EXHAUSTED beyond it.
  int64_t transport_bytes = int64_t{2} << 30;
  int max_tables = 1024;
  int max_clients = 1024;
  int max_calls_per_client = 64;
  int threads = 2;  // that work on tables

  // How often leases are looked at and metrics set.
  absl::Duration tick = absl::Milliseconds(100);
};

class ParameterServer {
 public:
  // UNAVAILABLE if the address cannot be listened on, INVALID_ARGUMENT for one of another form.
  // `logger` and `registry`, which may be null, must outlive the object.
  static absl::StatusOr<std::unique_ptr<ParameterServer>> Start(
      const ParameterServerOptions& options, Logger& logger, prometheus::Registry* registry);

  // As Shutdown without grace.
  ~ParameterServer();

  const std::string& address() const;

  // The most bytes of requests that were in hand at once (in_flight.h); for tests.
  int64_t peak_in_flight_bytes() const;

  // Takes no more calls, lets calls on tables that have begun end, refuses those that wait with
  // UNAVAILABLE, and ends all others after `grace`. Returns when nothing is under way. The second
  // call does nothing.
  void Shutdown(absl::Duration grace);

 private:
  struct Impl;
  explicit ParameterServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_RPC_PARAMETER_SERVER_H_
