// muster-worker: joins a fleet and trains what the coordinator says.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/command_line.h"
#include "base/daemon.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "proto/convert/control.h"
#include "proto/rpc/address.h"
#include "proto/rpc/grpc_log.h"
#include "worker/device/registry.h"
#include "worker/runtime/worker.h"

namespace muster {
namespace {

constexpr int64_t kLeastTimeoutMs = 1;
constexpr int64_t kMostTimeoutMs = 3'600'000;

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

// The host's name, made a worker's: a host may be called what a worker may not.
std::string DefaultName(absl::string_view host) {
  const std::string suffix = absl::StrCat("-", getpid());
  std::string name(host.substr(0, kMaxNameBytes - suffix.size()));
  for (char& c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_') c = '-';
  }
  if (name.empty() || !absl::ascii_isalnum(static_cast<unsigned char>(name[0]))) name = "worker";
  return name + suffix;
}

// Of the user's caches; empty where there is no place for them.
std::string DefaultModelCache() {
  if (const char* caches = getenv("XDG_CACHE_HOME"); caches != nullptr && caches[0] == '/') {
    return JoinPath(caches, "muster");
  }
  const char* const home = getenv("HOME");
  return home != nullptr && home[0] == '/' ? JoinPath(home, ".cache/muster") : "";
}

// libgomp's threads spin for milliseconds before they sleep, and where cores are shared they take
// them from the very thread they wait for: steps become ten times longer. The library reads its
// environment before main() begins, so the program starts anew, unless somebody has chosen already.
// `argv` is main's.
void LetComputeThreadsSleep(char** argv) {
  if (getenv("OMP_WAIT_POLICY") != nullptr || getenv("GOMP_SPINCOUNT") != nullptr) return;
  if (setenv("OMP_WAIT_POLICY", "PASSIVE", /*overwrite=*/0) != 0) return;
  execv("/proc/self/exe", argv);
  // It did not start anew, and computes in the other manner.
}

int Usage(const absl::Status& status) {
  std::fprintf(stderr, "muster-worker: %s\n", std::string(status.message()).c_str());
  return 2;
}

int Main(int argc, char** argv) {
  OpenStandardDescriptors();
  RaiseFileLimit();
  TuneProcess();
  CLI::App app("Joins a Muster fleet and trains what its coordinator says.", "muster-worker");
  DaemonOptions options;
  options.host = HostName();
  options.software_version = kSoftwareVersion;
  std::string listen_data = "127.0.0.1:0";
  LogFlags log_flags;
  std::string ready_file, role = "worker";
  int64_t connect_timeout_ms = absl::ToInt64Milliseconds(options.connect_timeout);
  int64_t mesh_timeout_ms = absl::ToInt64Milliseconds(options.mesh_timeout);
  int64_t final_checkpoint_timeout_ms = absl::ToInt64Milliseconds(options.final_checkpoint_timeout);
  app.add_option("--coordinator", options.coordinator_address, "Coordinator's host:port")
      ->default_val("127.0.0.1:7070");
  app.add_option("--name", options.name, "Name of this worker, unique in the fleet")
      ->default_str("<host>-<pid>")
      ->check(NotEmpty);
  app.add_option("--listen-data", listen_data,
                 "Address or interface, and port, of the data plane (port 0: any)")
      ->default_val(listen_data);
  app.add_option("--listen-rpc", options.rpc_listen,
                 "host:port of the worker's gRPC server (port 0: any)")
      ->default_val(options.rpc_listen);
  app.add_option("--advertise", options.advertise,
                 "Address, interface or host name that other workers dial, when it is not the one "
                 "bound")
      ->check(NotEmpty);
  app.add_option(
         "--device", options.device,
         absl::StrCat("Compute device; this build has: ", absl::StrJoin(DeviceNames(), ", ")))
      ->default_val(options.device)
      ->check(NotEmpty);
  app.add_option("--role", role,
                 "worker, or parameter-server: owns shards of jobs that ask for servers, and "
                 "computes no gradients")
      ->default_val(role)
      ->check(CLI::IsMember({"worker", "parameter-server"}));
  app.add_option("--host", options.host,
                 "Name of the host, by which replicas are spread and links shared")
      ->default_str("<host name>")
      ->check(NotEmpty);
  app.add_option(
         "--memory", options.memory_bytes,
         "The most that a job's parameters, gradients and optimizer state may take here, as "
         "8GiB; 0: what the host has")
      ->default_val(options.memory_bytes)
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true))
      ->check(CLI::NonNegativeNumber);
  app.add_option("--threads", options.threads, "Compute threads")
      ->default_val(options.threads)
      ->check(CLI::Range(1, 1024));
  app.add_option("--metrics-listen", options.metrics_listen,
                 "host:port for Prometheus metrics (port 0: any); none by default")
      ->check(NotEmpty);
  app.add_option("--run-directory", options.run_directory,
                 "Where rank 0 writes TensorBoard and JSON-lines metrics; none by default")
      ->check(NotEmpty);
  app.add_option("--model-cache", options.model_cache,
                 "Directory where measurements of meshes are kept; empty: measure at each start")
      ->default_val(DefaultModelCache());
  app.add_option("--connect-timeout-ms", connect_timeout_ms,
                 "Give up if the coordinator can't be reached for this long at start")
      ->default_val(connect_timeout_ms)
      ->check(CLI::Range(kLeastTimeoutMs, kMostTimeoutMs));
  app.add_option("--mesh-timeout-ms", mesh_timeout_ms,
                 "Give a view up if the links to its other workers take longer than this")
      ->default_val(mesh_timeout_ms)
      ->check(CLI::Range(kLeastTimeoutMs, kMostTimeoutMs));
  app.add_option("--final-checkpoint-timeout-ms", final_checkpoint_timeout_ms,
                 "Fail the job if writing its last checkpoint takes longer than this")
      ->default_val(final_checkpoint_timeout_ms)
      ->check(CLI::Range(kLeastTimeoutMs, kMostTimeoutMs));
  log_flags.Declare(app);
  app.add_option("--ready-file", ready_file,
                 "Write the bound addresses here, as JSON, once the worker listens")
      ->check(NotEmpty);
  app.set_version_flag("--version", kSoftwareVersion);
  if (const auto code = ReadArguments(app, argc, argv)) return *code;
  if (options.threads > 1) LetComputeThreadsSleep(argv);
  if (role == "parameter-server") options.role = MemberRole::kParameterServer;
  if (options.name.empty()) options.name = DefaultName(options.host);
  options.connect_timeout = absl::Milliseconds(connect_timeout_ms);
  options.mesh_timeout = absl::Milliseconds(mesh_timeout_ms);
  options.final_checkpoint_timeout = absl::Milliseconds(final_checkpoint_timeout_ms);
  if (absl::Status status = CheckName("--name", options.name); !status.ok()) return Usage(status);
  if (const auto address = ParseAddressToDial(options.coordinator_address); !address.ok()) {
    return Usage(Annotate(address.status(), "--coordinator"));
  }
  if (const auto address = ParseHostPort(options.rpc_listen); !address.ok()) {
    return Usage(Annotate(address.status(), "--listen-rpc"));
  }
  const absl::StatusOr<HostPort> data = ParseHostPort(listen_data);
  if (!data.ok()) return Usage(Annotate(data.status(), "--listen-data"));
  options.data_bind = data->host;
  options.data_port = static_cast<uint16_t>(data->port);
  absl::StatusOr<LoggerOptions> log = log_flags.ToOptions(options.name);
  if (!log.ok()) return Usage(log.status());

  // gRPC's threads may log until the process ends.
  Logger& logger = *new Logger(*std::move(log));
  RouteGrpcLogTo(logger);
  // Signals may come before the daemon is there to be drained.
  std::atomic<Daemon*> running{nullptr};
  std::atomic<bool> asked{false};
  SignalThread signals([&](int) {
    asked = true;
    logger.Info("drain", "leaving the fleet in good order; a second signal ends at once");
    if (Daemon* daemon = running) daemon->Drain();
  });
  PosixFileSystem files;
  absl::StatusOr<std::unique_ptr<Daemon>> daemon = Daemon::Start(options, files, logger);
  if (!daemon.ok()) {
    logger.Error("start_failed", daemon.status().message());
    return absl::IsInvalidArgument(daemon.status()) || absl::IsNotFound(daemon.status()) ? 2 : 1;
  }
  running = daemon->get();
  if (asked) (*daemon)->Drain();
  logger.Info("listening", "worker is up",
              {{"data", (*daemon)->data_address()},
               {"rpc", (*daemon)->rpc_address()},
               {"device", options.device},
               {"role", role},
               {"threads", options.threads},
               {"metrics_port", (*daemon)->metrics_port()}});
  if (!ready_file.empty()) {
    const nlohmann::json ready = {{"data_address", (*daemon)->data_address()},
                                  {"rpc_address", (*daemon)->rpc_address()},
                                  {"metrics_port", (*daemon)->metrics_port()}};
    if (absl::Status status = ReplaceFileAtomically(files, ready_file, ready.dump());
        !status.ok()) {
      logger.Error("start_failed", Annotate(status, "--ready-file").message());
      return 1;
    }
  }
  std::string reason;
  const int code = (*daemon)->Wait(&reason);
  running = nullptr;
  if (code == 0) {
    logger.Info("left", "left the fleet", {{"reason", reason}});
  } else {
    logger.Error("left", reason);
  }
  return code;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::Main(argc, argv); }
