// muster: runs and follows training jobs (docs: README.md).
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/daemon.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "client/commands/doctor.h"
#include "client/commands/job_commands.h"
#include "client/commands/tune.h"
#include "client/commands/up.h"
#include "client/commands/verify.h"
#include "client/output/console.h"
#include "proto/rpc/address.h"
#include "proto/rpc/grpc_log.h"

namespace muster {
namespace {

// What a worker keeps of each mesh.
constexpr size_t kMostOperations = 1024;

// Of this very program; the daemons lie beside it.
absl::StatusOr<std::string> BinaryDirectory() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0 || length == static_cast<ssize_t>(sizeof path)) {
    return absl::UnavailableError(
        "cannot read /proc/self/exe to find the daemons; is /proc mounted?");
  }
  return ParentDirectory(absl::string_view(path, static_cast<size_t>(length)));
}

std::string DefaultRunDirectory() {
  return absl::StrCat("runs/",
                      absl::FormatTime("%Y-%m-%dT%H-%M-%S", absl::Now(), absl::LocalTimeZone()),
                      "-", getpid());
}

void AddClientOptions(CLI::App* command, ClientCommandOptions* options) {
  command->add_option("--coordinator", options->coordinator, "The coordinator's host:port")
      ->capture_default_str()
      ->check(NotEmpty);
  command->add_flag("--json", options->json, "JSON for scripts, one object a line");
}

// Of commands that follow a job.
void AddReconnectOption(CLI::App* command, ClientCommandOptions* options) {
  command
      ->add_option("--reconnect-s", options->reconnect_s,
                   "A coordinator that was lost is given up when it cannot be reached again for so "
                   "long; 0: never")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{31'536'000}));
}

CLI::App* AddUp(CLI::App* app, UpOptions* options) {
  CLI::App* up = app->add_subcommand(
      "up", "Start a coordinator and workers here, run a job, show a summary, end everything");
  up->add_option("--job", options->job_file,
                 "Job file (.yaml, .json, .textproto); without it the fleet waits for jobs")
      ->check(NotEmpty);
  up->add_option("--workers", options->workers, "Number of worker processes")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  up->add_option("--servers", options->servers,
                 "Number of parameter server processes, for jobs whose strategy uses them")
      ->capture_default_str()
      ->check(CLI::Range(0, 512));
  up->add_option("--threads", options->threads,
                 "Compute threads of each worker; by default the cores are shared out")
      ->check(CLI::Range(1, 1024));
  up->add_option("--steps", options->steps, "Train this many steps instead of what the job says")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  up->add_option("--summary-json", options->summary_file, "Write the summary here as JSON")
      ->check(NotEmpty);
  up->add_option("--pid-file", options->pid_file, "Keep a JSON object of process name to pid here")
      ->check(NotEmpty);
  up->add_option("--run-directory", options->run_directory,
                 "For logs, metrics and checkpoints; by default runs/<time>-<pid>")
      ->check(NotEmpty);
  up->add_option("--listen", options->listen, "The coordinator's host:port; port 0: any")
      ->capture_default_str();
  up->add_option("--heartbeat-ms", options->heartbeat_ms, "Interval of the workers' heartbeats")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{10}, int64_t{3'600'000}));
  up->add_option("--lease-ms", options->lease_ms, "A worker silent for this long is given up")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{20}, int64_t{3'600'000}));
  up->add_flag("--respawn", options->respawn, "Replace workers that die");
  up->add_flag("--metrics", options->metrics, "Open Prometheus endpoints, on free ports");
  up->add_option("--log-level", options->log_level, "Least level of log lines")
      ->capture_default_str()
      ->check(CLI::IsMember({"debug", "info", "warning", "error", "off"}));
  up->add_flag("--json", options->json,
               "The job's states as JSON on standard output, logs on standard error");
  return up;
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

CLI::App* AddTune(CLI::App* app, TuneCommandOptions* options) {
  CLI::App* tune = app->add_subcommand(
      "tune",
      "Measure collectives among local ranks and show which algorithm is chosen for a size");
  tune->add_option("--ranks", options->ranks, "Numbers of ranks, such as 2,4")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  tune->add_option("--transport", options->transports, "Of inproc, tcp, shared_memory, libfabric")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->capture_default_str();
  tune->add_option("--bytes", options->bytes,
                   "Sizes of the whole f32 vector: a list, or a range by fours (1KiB-64MiB)")
      ->capture_default_str();
  tune->add_option("--collective", options->collective, "Which collective")->capture_default_str();
  tune->add_option("--rounds", options->rounds, "Rounds of --verify; the median counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  tune->add_option("--budget-ms", options->budget_ms, "Time for measuring the model")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{60'000}));
  tune->add_option("--cache", options->cache_directory,
                   "Directory of kept models (of all-reduce); none by default")
      ->check(NotEmpty);
  tune->add_flag("--any-order", options->any_order,
                 "Also algorithms whose sums are not in the canonical order");
  tune->add_flag("--explain", options->explain, "A line for each size that says why");
  tune->add_flag("--verify", options->verify,
                 "Measure all candidates; show how far the choice is from the best");
  tune->add_flag("--json", options->json, "JSON for scripts, one object a line");
  return tune;
}

int RunTune(TuneCommandOptions options) {
  options.host = HostName();
  options.software_version = kSoftwareVersion;
  PosixFileSystem files;
  Console console(stdout, IsTerminal(stdout) && !options.json);
  return TuneCommand(options, files, &console);
}

CLI::App* AddVerify(CLI::App* app, VerifyCommandOptions* options) {
  CLI::App* verify = app->add_subcommand(
      "verify",
      "Run a job here under every strategy, with switches and a death; exit 1 unless all end with "
      "the same bits");
  verify->add_option("--job", options->job_file, "Job file (.yaml, .json, .textproto)")
      ->required()
      ->check(NotEmpty);
  verify->add_option("--steps", options->plan.steps, "Steps of each run")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  verify->add_option("--workers", options->plan.workers, "Number of worker processes")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  verify
      ->add_option("--servers", options->plan.servers,
                   "Number of parameter server processes; 0: none of the strategies with them")
      ->capture_default_str()
      ->check(CLI::Range(0, 512));
  verify
      ->add_option("--threads", options->threads,
                   "Compute threads of each worker; by default the cores are shared out")
      ->check(CLI::Range(1, 1024));
  verify
      ->add_option("--stall-seconds", options->stall_seconds,
                   "A run fails whose job shows no progress for so long")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{86'400}));
  verify->add_option("--seed", options->plan.seed, "Of the random switches and the death")
      ->capture_default_str()
      ->check(NotEmpty)
      ->check(NotNegative);
  verify->add_option("--transport", options->transports, "Of tcp, shared_memory, libfabric")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->capture_default_str();
  verify->add_option("--json", options->json_file, "Write what was found here as JSON")
      ->check(NotEmpty);
  verify
      ->add_option("--run-directory", options->run_directory,
                   "For each run's logs, metrics and checkpoints; by default runs/<time>-<pid>")
      ->check(NotEmpty);
  return verify;
}

// What commands that start a fleet find out by themselves. Returns an exit code that is not 0 if
// they can't.
template <typename Options>
int CompleteFleetOptions(int workers, Options* options) {
  const absl::StatusOr<std::string> directory = BinaryDirectory();
  if (!directory.ok()) return Complain(directory.status(), 1);
  options->binary_directory = *directory;
  if (options->run_directory.empty()) options->run_directory = DefaultRunDirectory();
  if (options->threads == 0) {
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    options->threads = std::max(1, cores / workers);
  }
  return 0;
}

int RunVerify(VerifyCommandOptions options) {
  if (const int code = CompleteFleetOptions(options.plan.workers, &options); code != 0) return code;
  Console console(stdout, IsTerminal(stdout));
  return VerifyCommand(options, &console);
}

int RunUp(UpOptions options) {
  if (const int code = CompleteFleetOptions(options.workers, &options); code != 0) return code;
  Console console(stdout, IsTerminal(stdout) && !options.json);
  return UpCommand(options, &console);
}

int Main(int argc, char** argv) {
  ResetSignals();
  OpenStandardDescriptors();
  // A reader that goes away is seen as a failed write.
  signal(SIGPIPE, SIG_IGN);
  CLI::App app("Muster keeps a fleet of training workers in step.", "muster");
  app.set_version_flag("--version", kSoftwareVersion);
  app.require_subcommand(1);
  // A later option replaces an earlier one, so that a script's defaults can be overridden.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);

  UpOptions up_options;
  up_options.threads = 0;
  ClientCommandOptions client_options;
  SubmitOptions submit_options;
  std::string job_id;
  CLI::App* up = AddUp(&app, &up_options);
  CLI::App* submit = app.add_subcommand("submit", "Queue a job");
  submit->add_option("file", submit_options.file, "Job file (.yaml, .json, .textproto)")
      ->required()
      ->check(NotEmpty);
  submit->add_flag("--wait", submit_options.wait, "Follow the job to its end; exit 1 if it fails");
  submit
      ->add_option("--request-id", submit_options.request_id,
                   "Names this submission: repeated, it finds its job and queues no second one")
      ->check(NotEmpty);
  AddReconnectOption(submit, &client_options);
  CLI::App* watch = app.add_subcommand("watch", "Follow a job to its end; exit 1 if it fails");
  watch->add_option("job", job_id, "The job's id")->required()->check(NotEmpty);
  AddReconnectOption(watch, &client_options);
  CLI::App* status = app.add_subcommand("status", "Show a job, or all jobs");
  status->add_option("job", job_id, "The job's id")->check(NotEmpty);
  CLI::App* members = app.add_subcommand("members", "Show the workers of the fleet");
  CLI::App* operations =
      app.add_subcommand("operations", "Show the last collectives of each rank of a running job");
  operations->add_option("job", job_id, "The job's id")->required()->check(NotEmpty);
  std::optional<int> rank;
  operations->add_option("--rank", rank, "Of this rank alone")->check(CLI::Range(0, 1023));
  size_t last = kMostOperations;
  operations->add_option("--last", last, "So many of each rank, the newest")
      ->capture_default_str()
      ->check(CLI::Range(size_t{1}, kMostOperations));
  StrategyChange change;
  int64_t switch_timeout_s = 60;
  CLI::App* switch_job = app.add_subcommand(
      "switch", "Let a running job go on by another strategy; what is not given stays as it is");
  switch_job->add_option("job", job_id, "The job's id")->required()->check(NotEmpty);
  switch_job
      ->add_option(
          "--policy", change.policy,
          "auto: the coordinator chooses sync, stage, servers and mixed from now on; giving "
          "one of these, a shard group, or manual, ends that")
      ->check(CLI::IsMember({"auto", "manual"}));
  switch_job
      ->add_option("--sync", change.sync,
                   "all-reduce, or parameter-server: owners of shards sum and update")
      ->check(CLI::IsMember({"all-reduce", "parameter-server"}));
  switch_job
      ->add_option("--servers", change.servers,
                   "With parameter-server: the most dedicated servers; 0: shards on the workers")
      ->check(CLI::Range(0, 512));
  switch_job->add_option("--mixed", change.mixed,
                         "With servers: true, if workers are to own a part as well");
  switch_job
      ->add_option("--stage", change.stage,
                   "What is in shards: 0 nothing, 1 optimizer state, 2 gradients, 3 parameters too")
      ->check(CLI::Range(0, 3));
  switch_job->add_option("--shard-group", change.shard_group,
                         "Who shares out the state in shards: all, the workers of each host (host),"
                         " or groups of so many; other groups hold the replicas");
  switch_job
      ->add_option("--replicas", change.replicas, "Workers that hold a shard besides its owner")
      ->check(CLI::Range(0, 8));
  switch_job->add_option(
      "--algorithm", change.algorithm,
      "auto (the job's own), ring, direct, recursive-doubling, halving-doubling, double-tree, "
      "hierarchical, star, window or one-shot");
  switch_job->add_option("--transport", change.transport,
                         "auto, tcp, shared_memory, libfabric, grpc");
  switch_job->add_option("--timeout-s", switch_timeout_s, "Wait so long for it to be in force")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{86400}));
  CLI::App* explain = app.add_subcommand(
      "explain", "Show what each strategy would take of memory and time, and which is the best");
  explain->add_option("job", job_id, "The job's id")->required()->check(NotEmpty);
  CLI::App* cancel = app.add_subcommand("cancel", "End a job");
  cancel->add_option("job", job_id, "The job's id")->required()->check(NotEmpty);
  for (CLI::App* command :
       {submit, watch, status, members, operations, switch_job, explain, cancel}) {
    AddClientOptions(command, &client_options);
  }
  DoctorOptions doctor_options;
  CLI::App* doctor =
      app.add_subcommand("doctor", "Check whether this host is fit for a job; exit 1 if not");
  doctor
      ->add_option("--coordinator", doctor_options.coordinator,
                   "Also whether this coordinator (host:port) can be reached from here")
      ->check(NotEmpty);
  doctor->add_flag("--json", doctor_options.json, "JSON for scripts, one object a line");
  TuneCommandOptions tune_options;
  const CLI::App* tune = AddTune(&app, &tune_options);
  VerifyCommandOptions verify_options;
  verify_options.threads = 0;
  const CLI::App* verify = AddVerify(&app, &verify_options);
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    commands.push_back(command->get_name());
  }
  if (argc > 1 && argv[1][0] != '-' &&
      std::find(commands.begin(), commands.end(), argv[1]) == commands.end()) {
    std::fprintf(stderr, "muster: no such command: %s; expected one of %s (see muster --help)\n",
                 argv[1], absl::StrJoin(commands, ", ").c_str());
    return 2;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return EndOutput("muster", app.exit(error));
    std::string command = "muster";
    for (const CLI::App* given : app.get_subcommands()) command += " " + given->get_name();
    std::fprintf(stderr, "muster: %s (see %s --help)\n", error.what(), command.c_str());
    return 2;
  }

  // gRPC's threads may log until the process ends; what matters is in the status of a failed call.
  RouteGrpcLogTo(*MakeSilentLogger().release());
  if (up->parsed()) return RunUp(up_options);
  if (verify->parsed()) return RunVerify(std::move(verify_options));
  if (tune->parsed()) return RunTune(std::move(tune_options));
  if (doctor->parsed()) {
    if (const auto address = ParseAddressToDial(doctor_options.coordinator);
        !doctor_options.coordinator.empty() && !address.ok()) {
      return Complain(Annotate(address.status(), "--coordinator"), 2);
    }
    Console console(stdout, IsTerminal(stdout) && !doctor_options.json);
    return DoctorCommand(doctor_options, &console);
  }
  if (const auto address = ParseAddressToDial(client_options.coordinator); !address.ok()) {
    return Complain(Annotate(address.status(), "--coordinator"), 2);
  }
  Console console(stdout, IsTerminal(stdout) && !client_options.json);
  if (submit->parsed()) return SubmitCommand(client_options, submit_options, &console);
  if (watch->parsed()) return WatchCommand(client_options, job_id, &console);
  if (status->parsed()) return StatusCommand(client_options, job_id, &console);
  if (members->parsed()) return MembersCommand(client_options, &console);
  if (operations->parsed()) {
    return OperationsCommand(client_options, job_id, rank, last, &console);
  }
  if (switch_job->parsed()) {
    return SwitchCommand(client_options, job_id, change, absl::Seconds(switch_timeout_s), &console);
  }
  if (explain->parsed()) return ExplainCommand(client_options, job_id, &console);
  return CancelCommand(client_options, job_id, &console);
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::Main(argc, argv); }
