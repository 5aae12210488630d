// A worker daemon without its command line: session, core, job's thread, data-plane port and gRPC
// server, wired together.
//
// Threads: the session's (directives), the executor (actions and timers), the job's (state, mesh,
// training), the checkpointer's, a learner's, the servers'. The core's mutex is the only lock they
// share.
#ifndef MUSTER_WORKER_RUNTIME_WORKER_H_
#define MUSTER_WORKER_RUNTIME_WORKER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/control/messages.h"
#include "base/file.h"
#include "base/log.h"
#include "base/metrics_endpoint.h"
#include "worker/device/device.h"

namespace muster {

struct DaemonOptions {
  std::string name;                 // unique in the fleet
  std::string host;                 // host identity
  std::string coordinator_address;  // host:port
  // Data plane: an address or interface to bind, a port (0: any), and what peers dial instead of
  // the bound address, on both ports: an address, an interface or a host name (empty: the same).
  std::string data_bind = "127.0.0.1";
  uint16_t data_port = 0;
  std::string advertise;
  std::string rpc_listen = "127.0.0.1:0";
  std::string metrics_listen;  // empty: no endpoint
  std::string run_directory;   // empty: no metrics files
  std::string model_cache;     // directory of measured meshes; empty: none
  std::string device = "cpu";
  MemberRole role = MemberRole::kWorker;
  int threads = 1;
  int64_t memory_bytes = 0;  // the most that a job's state may take; 0: what the host has
  absl::Duration connect_timeout = absl::Seconds(30);  // to the coordinator, at start
  absl::Duration mesh_timeout = absl::Seconds(10);     // for a view's links to be up
  absl::Duration final_checkpoint_timeout = absl::Seconds(60);
  std::string software_version;
};

class Daemon {
 public:
  // Binds ports and starts to join the fleet. Errors begin with the flag of muster-worker that is
  // wrong.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const DaemonOptions& options,
                                                       FileSystem& files, Logger& logger);
  // Stops at once.
  ~Daemon();

  // Leaves the fleet in good order; Wait returns when that is done. From any thread.
  void Drain();
  // Blocks until the worker has left. 0: drained or released; otherwise 1, and `reason` says why.
  int Wait(std::string* reason);

  const std::string& data_address() const;
  const std::string& rpc_address() const;
  int metrics_port() const;  // 0: none

 private:
  class Impl;
  explicit Daemon(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_WORKER_H_
