// A coordinator that serves: its core, the services muster.v1.Coordinator and muster.v1.Fleet, the
// standard health service (for each of them and overall) and reflection, on one port. Thread-safe.
#ifndef MUSTER_SERVER_RPC_COORDINATOR_SERVER_H_
#define MUSTER_SERVER_RPC_COORDINATOR_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "base/log.h"
#include "server/core/options.h"
#include "server/rpc/record_store.h"

namespace prometheus {
class Registry;
}  // namespace prometheus

namespace muster {

struct CoordinatorServerOptions {
  std::string listen_address = "127.0.0.1:7070";  // host:port; port 0 takes a free one
  CoordinatorOptions core;

  // How long a session may take to say hello, and to take its last directives when it is closed.
  absl::Duration hello_timeout = absl::Seconds(5);
  absl::Duration linger = absl::Seconds(2);
  // Directives that wait for one worker; it is disconnected beyond this.
  int max_queued_directives = 64;
  // Sessions open at once; 0: twice core.max_workers, as each may have one that is being replaced.
  int max_sessions = 0;
  int max_watchers = 256;
  absl::Duration progress_interval = absl::Milliseconds(100);  // of one job, to its watchers

  // Called once, from any thread, if the store fails: the coordinator has stopped, and the process
  // should end. Must not call the server.
  std::function<void(const absl::Status&)> on_fatal;
};

class CoordinatorServer {
 public:
  // Everything passed by reference must outlive the server; `registry` may be null.
  // INVALID_ARGUMENT for an address of another form, UNAVAILABLE if it cannot be listened on.
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Start(CoordinatorServerOptions options,
                                                                  RecordStore& store,
                                                                  FileSystem& files, Logger& logger,
                                                                  prometheus::Registry* registry);
  // Shuts down at once.
  ~CoordinatorServer();

  int port() const;
  // The listen address with the bound port.
  const std::string& address() const;

  // Says goodbye to every session and watcher, and ends calls still under way after `grace`.
  // Workers go on training. Idempotent.
  void Shutdown(absl::Duration grace = absl::ZeroDuration());

 private:
  class Impl;
  explicit CoordinatorServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace muster

#endif  // MUSTER_SERVER_RPC_COORDINATOR_SERVER_H_
