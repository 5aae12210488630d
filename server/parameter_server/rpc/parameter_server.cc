#include "server/parameter_server/rpc/parameter_server.h"

#include <algorithm>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "proto/rpc/server.h"
#include "server/parameter_server/rpc/parameter_server_metrics.h"
#include "server/parameter_server/rpc/server_parts.h"
#include "server/parameter_server/rpc/table_service.h"

namespace muster {

struct ParameterServer::Impl {
  Impl(const ParameterServerOptions& options_in, Logger& logger_in, prometheus::Registry* registry)
      : options(options_in),
        logger(logger_in),
        account(std::make_shared<SharedAccount>(options.memory_bytes)),
        pool(std::make_shared<WorkPool>(options.threads)),
        tables({.max_tables = options.max_tables,
                .limits = {.held_bytes = options.held_bytes, .retired_bytes = options.held_bytes}},
               account, std::make_shared<SharedAccount>(options.in_flight_bytes), pool),
        in_flight(options.in_flight_bytes),
        clients(options.max_clients, options.max_calls_per_client),
        service({.pool = pool,
                 .account = account,
                 .tables = tables,
                 .in_flight = in_flight,
                 .clients = clients}) {
    if (registry != nullptr) metrics = std::make_unique<ParameterServerMetrics>(*registry);
  }
  ~Impl() { pool->Stop(); }

  // Leases and metrics, until `stopped`.
  void Tick() {
    while (!stopped.WaitForNotificationWithTimeout(options.tick)) {
      std::vector<std::string> names;
      for (const std::shared_ptr<TableHost>& host : tables.All()) {
        names.push_back(host->name());
        host->Run([this, asked = absl::Now()](const TableHost::Access& access) {
          return Look(access, asked);
        });
      }
      {
        absl::MutexLock lock(&skipped_mutex);
        std::erase_if(skipped, [&](const auto& entry) {
          return std::find(names.begin(), names.end(), entry.first) == names.end();
        });
      }
      if (metrics == nullptr) continue;
      metrics->KeepOnly(names);
      metrics->Set({.taken_bytes = account->taken_bytes(),
                    .budget_bytes = account->budget_bytes(),
                    .in_flight_bytes = in_flight.bytes(),
                    .clients = clients.clients()});
    }
  }

  // Signs of life that had come when the look was asked for have been seen before it. Those that
  // came since stand behind it, if a call on the table has taken long, so that it must not look at
  // the clock again.
  std::optional<TableHost::Again> Look(const TableHost::Access& access, absl::Time asked) {
    Table& table = access.table.get();
    if (!access.closed.ok()) return std::nullopt;
    for (const int32_t index : table.Expire(asked)) {
      logger.Warning("contributor_lost",
                     absl::StrCat("contributor ", index, " of table ", table.spec().name,
                                  " gave no sign of life within its lease"),
                     {{"table", table.spec().name}, {"contributor", index}});
    }
    if (const int64_t skipped = NewlySkipped(table); skipped > 0) {
      logger.Warning("updates_skipped",
                     absl::StrCat(skipped, " updates of table ", table.spec().name,
                                  " were skipped: a NaN or an infinity in the sum"),
                     {{"table", table.spec().name}, {"version", table.version()}});
    }
    if (metrics != nullptr) {
      metrics->Set(table.spec().name, {.counts = table.Metrics(),
                                       .version = table.version(),
                                       .contributors = table.contributors().attached_count(),
                                       .waiting = static_cast<int64_t>(table.waiting())});
    }
    return std::nullopt;
  }

  // How many more updates of the table were skipped since this was last asked.
  int64_t NewlySkipped(const Table& table) {
    const int64_t now = table.Metrics().updates_skipped;
    absl::MutexLock lock(&skipped_mutex);
    const int64_t before = std::exchange(skipped[table.spec().name], now);
    return now - before;
  }

  const ParameterServerOptions options;
  Logger& logger;
  const std::shared_ptr<SharedAccount> account;
  const std::shared_ptr<WorkPool> pool;
  TableRegistry tables;
  InFlight in_flight;
  ClientLimit clients;
  std::unique_ptr<ParameterServerMetrics> metrics;
  TableService service;
  RunningServer running;
  absl::Notification stopped;
  std::thread ticker;
  absl::Mutex skipped_mutex;
  // By table: updates that were skipped, as far as they are in the log.
  std::map<std::string, int64_t> skipped ABSL_GUARDED_BY(skipped_mutex);
  absl::Mutex mutex;
  bool shut_down ABSL_GUARDED_BY(mutex) = false;
};

absl::StatusOr<std::unique_ptr<ParameterServer>> ParameterServer::Start(
    const ParameterServerOptions& options, Logger& logger, prometheus::Registry* registry) {
  auto impl = std::make_unique<Impl>(options, logger, registry);
  ServerOptions server;
  server.listen_address = options.listen_address;
  server.services = {{&impl->service, "muster.v1.ParameterServer"}};
  server.memory_bytes = options.transport_bytes;
  server.bulk = true;
  MUSTER_ASSIGN_OR_RETURN(impl->running, StartServer(server));
  impl->ticker = std::thread([impl = impl.get()] { impl->Tick(); });
  return std::unique_ptr<ParameterServer>(new ParameterServer(std::move(impl)));
}

ParameterServer::ParameterServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ParameterServer::~ParameterServer() { Shutdown(absl::ZeroDuration()); }

const std::string& ParameterServer::address() const { return impl_->running.address; }
int64_t ParameterServer::peak_in_flight_bytes() const { return impl_->in_flight.peak_bytes(); }

void ParameterServer::Shutdown(absl::Duration grace) {
  absl::MutexLock lock(&impl_->mutex);
  if (std::exchange(impl_->shut_down, true)) return;
  impl_->stopped.Notify();
  impl_->ticker.join();
  impl_->tables.CloseAll(absl::UnavailableError("the parameter server is shutting down"));
  ShutdownServer(*impl_->running.server, grace);
  impl_->running.server.reset();
  impl_->pool->Stop();
}

}  // namespace muster
