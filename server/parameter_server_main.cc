// muster-parameter-server: holds tables of parameters that clients push gradients to.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/command_line.h"
#include "base/daemon.h"
#include "base/file.h"
#include "base/log.h"
#include "base/metrics_endpoint.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "proto/rpc/address.h"
#include "proto/rpc/grpc_log.h"
#include "server/parameter_server/rpc/parameter_server.h"

namespace muster {
namespace {

struct Flags {
  ParameterServerOptions server;
  std::string metrics_listen;
  int64_t shutdown_grace_ms = 2'000;
  LogFlags log;
  std::string ready_file;
};

int Usage(absl::string_view problem) {
  std::fprintf(stderr, "muster-parameter-server: %s (see --help)\n", std::string(problem).c_str());
  return 2;
}

void DeclareBytes(CLI::App& app, const std::string& name, int64_t& value, const std::string& help) {
  app.add_option(name, value, help)
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true))
      ->check(CLI::Range(int64_t{1} << 20, int64_t{1} << 50))
      ->default_val(value);
}

void Declare(CLI::App& app, Flags& flags) {
  ParameterServerOptions& server = flags.server;
  server.threads = static_cast<int>(std::max(2u, std::thread::hardware_concurrency()));
  app.add_option("--listen", server.listen_address,
                 "host:port to serve on; an IPv6 address in brackets; port 0 takes a free one")
      ->default_val(server.listen_address);
  app.add_option("--metrics-listen", flags.metrics_listen,
                 "host:port for Prometheus metrics (port 0: any); none by default")
      ->check(NotEmpty);
  DeclareBytes(app, "--memory-bytes", server.memory_bytes,
               "Memory of all tables, such as 4GiB: parameters, optimizer state, and what is held "
               "of pushes and for readers");
  DeclareBytes(app, "--held-bytes", server.held_bytes,
               "Of one table: pushes before their turn, and old versions that are still read");
  DeclareBytes(
      app, "--in-flight-bytes", server.in_flight_bytes,
      "Requests read ahead of their turn, over all calls; and as much again for answers that are "
      "copies of rows");
  DeclareBytes(app, "--transport-bytes", server.transport_bytes,
               "What gRPC may take for what it receives and sends");
  app.add_option("--max-tables", server.max_tables, "Tables")
      ->check(CLI::Range(1, 1 << 20))
      ->default_val(server.max_tables);
  app.add_option("--max-clients", server.max_clients, "Connections that move data at once")
      ->check(CLI::Range(1, 1 << 16))
      ->default_val(server.max_clients);
  app.add_option("--max-calls-per-client", server.max_calls_per_client,
                 "Calls that move data at once, of one connection")
      ->check(CLI::Range(1, 1024))
      ->default_val(server.max_calls_per_client);
  app.add_option("--threads", server.threads, "Threads that work on tables")
      ->check(CLI::Range(1, 1024))
      ->default_val(server.threads);
  app.add_option("--shutdown-grace-ms", flags.shutdown_grace_ms,
                 "How long calls under way may take to end after SIGTERM")
      ->check(CLI::Range(0, 3'600'000))
      ->default_val(flags.shutdown_grace_ms);
  flags.log.Declare(app);
  app.add_option("--ready-file", flags.ready_file,
                 "Write the bound addresses here, as JSON, once the server serves")
      ->check(NotEmpty);
  app.set_version_flag("--version", kSoftwareVersion);
}

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
  absl::StatusOr<std::unique_ptr<ParameterServer>> server = ParameterServer::Start(
      flags.server, logger, metrics == nullptr ? nullptr : &metrics->registry());
  if (!server.ok()) return failed(Annotate(server.status(), "--listen"));

  const int metrics_port = metrics == nullptr ? 0 : metrics->port();
  logger.Info("listening", absl::StrCat("parameter server is up on ", (*server)->address()),
              {{"rpc", (*server)->address()},
               {"metrics_port", metrics_port},
               {"memory_bytes", flags.server.memory_bytes},
               {"version", kSoftwareVersion}});
  if (!flags.ready_file.empty()) {
    PosixFileSystem files;
    const nlohmann::json ready = {{"rpc_address", (*server)->address()},
                                  {"metrics_port", metrics_port}};
    const absl::Status written = ReplaceFileAtomically(files, flags.ready_file, ready.dump());
    if (!written.ok()) return failed(Annotate(written, "--ready-file"));
  }
  signalled.WaitForNotification();
  logger.Info("stopping", "ending what is under way; tables are in memory only and will be lost");
  (*server)->Shutdown(absl::Milliseconds(flags.shutdown_grace_ms));
  logger.Info("stopped", "parameter server has stopped");
  return 0;
}

int Main(int argc, char** argv) {
  OpenStandardDescriptors();
  RaiseFileLimit();
  TuneProcess();
  KeepFreedMemory();
  CLI::App app("Holds tables of parameters: clients push gradients and pull values.",
               "muster-parameter-server");
  Flags flags;
  Declare(app, flags);
  if (const auto code = ReadArguments(app, argc, argv)) return *code;
  for (const auto& [name, address] : {std::pair("--listen", &flags.server.listen_address),
                                      std::pair("--metrics-listen", &flags.metrics_listen)}) {
    if (address->empty()) continue;
    const absl::Status parsed = Annotate(ParseHostPort(*address).status(), name);
    if (!parsed.ok()) return Usage(parsed.message());
  }
  absl::StatusOr<LoggerOptions> log = flags.log.ToOptions("parameter-server");
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
