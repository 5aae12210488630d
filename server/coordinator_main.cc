// muster-coordinator: knows who is in the fleet and what to do when that changes.
#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/command_line.h"
#include "base/daemon.h"
#include "base/file.h"
#include "base/log.h"
#include "base/metrics_endpoint.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "proto/convert/control.h"
#include "proto/rpc/address.h"
#include "proto/rpc/grpc_log.h"
#include "server/rpc/coordinator_server.h"

namespace muster {
namespace {

// How long calls under way may take to end by themselves at shutdown.
constexpr absl::Duration kShutdownGrace = absl::Milliseconds(500);

struct Flags {
  std::string listen = "127.0.0.1:7070";
  std::string metrics_listen;
  std::string fleet_id = "muster";
  int64_t heartbeat_ms = 250;
  int64_t lease_ms = 2'000;
  int64_t orphan_timeout_ms = 60'000;
  int max_workers = 1024;
  LogFlags log;
  std::string ready_file;
};

int Usage(absl::string_view problem) {
  std::fprintf(stderr, "muster-coordinator: %s (see --help)\n", std::string(problem).c_str());
  return 2;
}

void Declare(CLI::App& app, Flags& flags) {
  constexpr int64_t kHourMs = 3'600'000;
  app.add_option("--listen", flags.listen,
                 "host:port to serve on; an IPv6 address in brackets; port 0 takes a free one")
      ->default_val(flags.listen);
  app.add_option("--metrics-listen", flags.metrics_listen,
                 "host:port for Prometheus metrics (port 0: any); none by default")
      ->check(NotEmpty);
  app.add_option("--fleet-id", flags.fleet_id, "Workers of another fleet are refused")
      ->default_val(flags.fleet_id)
      ->check(NotEmpty);
  app.add_option("--heartbeat-ms", flags.heartbeat_ms, "How often workers give a sign of life")
      ->default_val(flags.heartbeat_ms)
      ->check(CLI::Range(int64_t{10}, kHourMs));
  app.add_option("--lease-ms", flags.lease_ms, "A worker silent for this long is declared dead")
      ->default_val(flags.lease_ms)
      ->check(CLI::Range(int64_t{20}, kHourMs));
  app.add_option("--orphan-timeout-ms", flags.orphan_timeout_ms,
                 "Workers train on without a coordinator for this long")
      ->default_val(flags.orphan_timeout_ms)
      ->check(CLI::Range(int64_t{100}, 24 * kHourMs));
  app.add_option("--max-workers", flags.max_workers, "Workers in the fleet, idle ones included")
      ->default_val(flags.max_workers)
      ->check(CLI::Range(1, 1024));
  flags.log.Declare(app);
  app.add_option("--ready-file", flags.ready_file,
                 "Write the bound addresses here, as JSON, once the coordinator serves")
      ->check(NotEmpty);
  app.set_version_flag("--version", kSoftwareVersion);
}

// What flags can get wrong beyond their own range.
absl::Status Check(const Flags& flags) {
  MUSTER_RETURN_IF_ERROR(Annotate(ParseHostPort(flags.listen).status(), "--listen"));
  if (!flags.metrics_listen.empty()) {
    MUSTER_RETURN_IF_ERROR(
        Annotate(ParseHostPort(flags.metrics_listen).status(), "--metrics-listen"));
  }
  MUSTER_RETURN_IF_ERROR(CheckText("--fleet-id", flags.fleet_id, kMaxIdBytes));
  if (flags.lease_ms < 2 * flags.heartbeat_ms) {
    return absl::InvalidArgumentError(
        absl::StrCat("--lease-ms: must be at least twice --heartbeat-ms (", flags.heartbeat_ms,
                     "), got ", flags.lease_ms));
  }
  return absl::OkStatus();
}

CoordinatorServerOptions ServerOptionsOf(const Flags& flags) {
  CoordinatorServerOptions options;
  options.listen_address = flags.listen;
  options.core.fleet_id = flags.fleet_id;
  options.core.heartbeat = absl::Milliseconds(flags.heartbeat_ms);
  options.core.lease = absl::Milliseconds(flags.lease_ms);
  options.core.orphan_timeout = absl::Milliseconds(flags.orphan_timeout_ms);
  options.core.max_workers = flags.max_workers;
  return options;
}

// Ends when a signal comes or the store fails.
int Serve(const Flags& flags, Logger& logger, absl::Notification& signalled) {
  const auto failed = [&](const absl::Status& status) {
    logger.Error("start_failed", status.message());
    return absl::IsInvalidArgument(status) ? 2 : 1;
  };
  std::unique_ptr<MetricsEndpoint> metrics;
  if (!flags.metrics_listen.empty()) {
    absl::StatusOr<std::unique_ptr<MetricsEndpoint>> started =
        MetricsEndpoint::Start(flags.metrics_listen);
    if (!started.ok()) return failed(Annotate(started.status(), "--metrics-listen"));
    metrics = *std::move(started);
  }
  PosixFileSystem files;
  MemoryStore store;
  std::atomic<bool> store_failed = false;
  CoordinatorServerOptions options = ServerOptionsOf(flags);
  absl::Notification fatal;
  options.on_fatal = [&](const absl::Status&) {
    store_failed = true;
    fatal.Notify();
  };
  absl::StatusOr<std::unique_ptr<CoordinatorServer>> server =
      CoordinatorServer::Start(std::move(options), store, files, logger,
                               metrics == nullptr ? nullptr : &metrics->registry());
  if (!server.ok()) return failed(Annotate(server.status(), "--listen"));

  logger.Info("listening", absl::StrCat("coordinator is up on ", (*server)->address()),
              {{"rpc", (*server)->address()},
               {"metrics_port", metrics == nullptr ? 0 : metrics->port()},
               {"version", kSoftwareVersion}});
  if (!flags.ready_file.empty()) {
    const nlohmann::json ready = {{"rpc_address", (*server)->address()},
                                  {"metrics_port", metrics == nullptr ? 0 : metrics->port()}};
    const absl::Status written = ReplaceFileAtomically(files, flags.ready_file, ready.dump());
    if (!written.ok()) return failed(Annotate(written, "--ready-file"));
  }
  const auto over = [&] { return signalled.HasBeenNotified() || fatal.HasBeenNotified(); };
  while (!over()) signalled.WaitForNotificationWithTimeout(absl::Milliseconds(200));
  logger.Info("stopping",
              "saying goodbye to workers and clients; workers that train go on without");
  (*server)->Shutdown(kShutdownGrace);
  logger.Info("stopped", "coordinator has stopped");
  return store_failed ? 1 : 0;
}

int Main(int argc, char** argv) {
  OpenStandardDescriptors();
  RaiseFileLimit();
  TuneProcess();
  CLI::App app("Keeps a fleet of training workers in step.", "muster-coordinator");
  Flags flags;
  Declare(app, flags);
  if (const auto code = ReadArguments(app, argc, argv)) return *code;
  if (absl::Status status = Check(flags); !status.ok()) return Usage(status.message());
  absl::StatusOr<LoggerOptions> log = flags.log.ToOptions("coordinator");
  if (!log.ok()) return Usage(log.status().message());

  // gRPC's threads may log until the process ends, so the logger is never destroyed.
  Logger& logger = *new Logger(*std::move(log));
  RouteGrpcLogTo(logger);
  absl::Notification signalled;
  SignalThread signals([&](int) { signalled.Notify(); });
  return Serve(flags, logger, signalled);
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::Main(argc, argv); }
