#include "server/rpc/coordinator_server.h"

#include <optional>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "proto/rpc/address.h"
#include "proto/rpc/server.h"
#include "server/rpc/coordinator_host.h"
#include "server/rpc/coordinator_metrics.h"
#include "server/rpc/services.h"

namespace muster {

class CoordinatorServer::Impl {
 public:
  absl::Status Start(CoordinatorServerOptions options, RecordStore& store, FileSystem& files,
                     Logger& logger, prometheus::Registry* registry) {
    // Before a term begins: a second coordinator on one port must leave no trace in the store.
    MUSTER_ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(options.listen_address));
    MUSTER_RETURN_IF_ERROR(ProbeListen(address));
    if (registry != nullptr) metrics_.emplace(*registry);
    CoordinatorHostOptions host;
    host.core = options.core;
    host.max_watchers = options.max_watchers;
    host.progress_interval = options.progress_interval;
    host.on_fatal = std::move(options.on_fatal);
    MUSTER_ASSIGN_OR_RETURN(host_, CoordinatorHost::Start(std::move(host), store, files, logger,
                                                          metrics_ ? &*metrics_ : nullptr));
    const SessionLimits limits{.hello_timeout = options.hello_timeout,
                               .linger = options.linger,
                               .max_queued_directives = options.max_queued_directives};
    const int sessions =
        options.max_sessions > 0 ? options.max_sessions : 2 * options.core.max_workers;
    fleet_ = std::make_unique<FleetService>(host_, limits, sessions);
    coordinator_ = std::make_unique<CoordinatorService>(host_);
    ServerOptions server;
    server.listen_address = options.listen_address;
    server.services = {{coordinator_.get(), v1::Coordinator::service_full_name()},
                       {fleet_.get(), v1::Fleet::service_full_name()}};
    absl::StatusOr<RunningServer> running = StartServer(server);
    if (!running.ok()) return running.status();
    running_ = *std::move(running);
    return absl::OkStatus();
  }

  ~Impl() { Shutdown(absl::ZeroDuration()); }

  void Shutdown(absl::Duration grace) {
    absl::MutexLock lock(&shutdown_mutex_);
    if (host_ != nullptr) host_->Stop();
    if (running_.server != nullptr && !shut_down_) {
      ShutdownServer(*running_.server, grace);
    }
    shut_down_ = true;
  }

  const RunningServer& running() const { return running_; }

 private:
  std::optional<CoordinatorMetrics> metrics_;
  std::shared_ptr<CoordinatorHost> host_;
  std::unique_ptr<FleetService> fleet_;
  std::unique_ptr<CoordinatorService> coordinator_;
  RunningServer running_;
  absl::Mutex shutdown_mutex_;
  bool shut_down_ ABSL_GUARDED_BY(shutdown_mutex_) = false;
};

absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Start(
    CoordinatorServerOptions options, RecordStore& store, FileSystem& files, Logger& logger,
    prometheus::Registry* registry) {
  auto impl = std::make_unique<Impl>();
  MUSTER_RETURN_IF_ERROR(impl->Start(std::move(options), store, files, logger, registry));
  return std::unique_ptr<CoordinatorServer>(new CoordinatorServer(std::move(impl)));
}

CoordinatorServer::CoordinatorServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CoordinatorServer::~CoordinatorServer() = default;
int CoordinatorServer::port() const { return impl_->running().port; }
const std::string& CoordinatorServer::address() const { return impl_->running().address; }
void CoordinatorServer::Shutdown(absl::Duration grace) { impl_->Shutdown(grace); }

}  // namespace muster
