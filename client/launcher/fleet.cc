#include "client/launcher/fleet.h"

#include <signal.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace muster {
namespace {

constexpr char kCoordinator[] = "coordinator";
constexpr int64_t kMaxReadyFileBytes = 4096;

}  // namespace

Fleet::Fleet(FleetOptions options, FileSystem* files)
    : options_(std::move(options)), files_(files) {}

Fleet::~Fleet() { Kill(); }

std::string Fleet::ReadyFile(const std::string& name) const {
  return JoinPath(options_.run_directory, absl::StrCat(name, ".ready.json"));
}

absl::Status Fleet::Start(Process* process, std::vector<std::string> arguments) {
  // A file of an earlier process would name a port that is closed.
  MUSTER_RETURN_IF_ERROR(files_->RemoveAll(ReadyFile(process->name)));
  for (const auto& [flag, value] : std::initializer_list<std::pair<const char*, std::string>>{
           {"--ready-file", ReadyFile(process->name)},
           {"--log-format", "json"},
           {"--log-level", options_.log_level}}) {
    arguments.push_back(flag);
    arguments.push_back(value);
  }
  if (options_.metrics) {
    arguments.push_back("--metrics-listen");
    arguments.push_back("127.0.0.1:0");
  }
  if (process->log == nullptr) {
    const std::string directory = JoinPath(options_.run_directory, "logs");
    MUSTER_RETURN_IF_ERROR(files_->CreateDirectories(directory));
    MUSTER_ASSIGN_OR_RETURN(process->log, files_->OpenToAppend(JoinPath(
                                              directory, absl::StrCat(process->name, ".log"))));
  }
  MUSTER_ASSIGN_OR_RETURN(process->child, ChildProcess::Start(arguments));
  process->reported = false;
  process->last_error.clear();
  const absl::Status written = WritePidFile();
  // At the beginning it is a wrong flag; later the job goes on without it.
  return process->starts++ == 0 ? written : absl::OkStatus();
}

absl::Status Fleet::StartCoordinator() {
  MUSTER_CHECK(processes_.empty());
  processes_.push_back(std::make_unique<Process>());
  processes_.back()->name = kCoordinator;
  return Start(processes_.back().get(),
               {JoinPath(options_.binary_directory, "muster-coordinator"), "--listen",
                options_.listen, "--heartbeat-ms", absl::StrCat(options_.heartbeat_ms),
                "--lease-ms", absl::StrCat(options_.lease_ms)});
}

absl::StatusOr<std::optional<std::string>> Fleet::CoordinatorAddress() {
  if (!coordinator_address_.empty()) return coordinator_address_;
  const std::string path = ReadyFile(kCoordinator);
  MUSTER_ASSIGN_OR_RETURN(const bool exists, files_->Exists(path));
  if (!exists) return std::nullopt;
  // The file is renamed into place, so it is whole.
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(*files_, path, kMaxReadyFileBytes));
  const auto ready = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!ready.is_object() || !ready.contains("rpc_address") || !ready["rpc_address"].is_string()) {
    return absl::InternalError(
        absl::StrCat(path, ": expected a JSON object with rpc_address, got ", text));
  }
  coordinator_address_ = ready["rpc_address"].get<std::string>();
  return coordinator_address_;
}

absl::Status Fleet::StartWorker(Process* process) {
  MUSTER_CHECK(!coordinator_address_.empty());
  return Start(
      process,
      {JoinPath(options_.binary_directory, "muster-worker"), "--coordinator", coordinator_address_,
       "--name", process->name, "--listen-data", "127.0.0.1:0", "--listen-rpc", "127.0.0.1:0",
       "--device", "cpu", "--role", process->is_server ? "parameter-server" : "worker", "--threads",
       absl::StrCat(options_.threads), "--run-directory", options_.run_directory});
}

absl::Status Fleet::StartWorkers() {
  for (int i = 0; i < options_.workers + options_.servers; ++i) {
    processes_.push_back(std::make_unique<Process>());
    Process* process = processes_.back().get();
    process->is_worker = true;
    process->is_server = i >= options_.workers;
    process->name = process->is_server ? absl::StrCat("server-", i - options_.workers)
                                       : absl::StrCat("worker-", i);
    MUSTER_RETURN_IF_ERROR(StartWorker(process));
  }
  return absl::OkStatus();
}

absl::Status Fleet::RestartWorker(const std::string& name) {
  for (const auto& process : processes_) {
    if (process->name != name) continue;
    MUSTER_CHECK(process->is_worker && !process->child->running());
    return StartWorker(process.get());
  }
  return absl::NotFoundError(absl::StrCat("no process ", name));
}

void Fleet::AppendDescriptors(std::vector<pollfd>* descriptors) const {
  for (const auto& process : processes_) {
    if (process->child == nullptr || process->child->output_descriptor() < 0) continue;
    descriptors->push_back({process->child->output_descriptor(), POLLIN, 0});
  }
}

void Fleet::TakeLine(Process* process, const std::string& line) {
  if (line.empty()) return;
  // A full disk must not stop the run; the line is still shown.
  (void)process->log->Append(absl::StrCat(line, "\n"));
  const LogLine shown = ReadLogLine(line);
  if (shown.level >= LogLevel::kError) process->last_error = shown.text;
  options_.on_line(process->name, shown);
}

void Fleet::Read(Process* process) {
  for (const std::string& line : process->splitter.Add(process->child->ReadOutput())) {
    TakeLine(process, line);
  }
}

void Fleet::ReadOutput() {
  for (const auto& process : processes_) {
    if (process->child != nullptr) Read(process.get());
  }
}

std::vector<Fleet::Exit> Fleet::Reap() {
  std::vector<Exit> exits;
  for (const auto& process : processes_) {
    if (process->child == nullptr || process->reported) continue;
    const std::optional<int> status = process->child->Reap();
    if (!status.has_value()) continue;
    process->reported = true;
    Read(process.get());
    TakeLine(process.get(), process->splitter.Rest());
    exits.push_back({process->name, *status, process->last_error, process->is_worker});
  }
  // The caller hears of the exits; for a pid file no job is ended.
  if (!exits.empty()) (void)WritePidFile();
  return exits;
}

int Fleet::Running(bool servers) const {
  int count = 0;
  for (const auto& process : processes_) {
    count += process->is_worker && process->is_server == servers && process->child != nullptr &&
             process->child->running();
  }
  return count;
}

int Fleet::running_workers() const { return Running(/*servers=*/false); }

int Fleet::running_servers() const { return Running(/*servers=*/true); }

bool Fleet::coordinator_running() const {
  return !processes_.empty() && processes_.front()->child != nullptr &&
         processes_.front()->child->running();
}

void Fleet::SignalWorkers(int signal) {
  for (const auto& process : processes_) {
    if (process->is_worker && process->child != nullptr) process->child->Signal(signal);
  }
}

void Fleet::SignalWorker(const std::string& name, int signal) {
  for (const auto& process : processes_) {
    if (process->is_worker && process->name == name && process->child != nullptr) {
      process->child->Signal(signal);
    }
  }
}

void Fleet::SignalCoordinator(int signal) {
  if (coordinator_running()) processes_.front()->child->Signal(signal);
}

void Fleet::Kill() {
  if (processes_.empty()) return;
  ReadOutput();
  processes_.clear();
  (void)WritePidFile();
}

absl::Status Fleet::WritePidFile() {
  if (options_.pid_file.empty()) return absl::OkStatus();
  nlohmann::ordered_json pids = nlohmann::ordered_json::object();
  for (const auto& process : processes_) {
    if (process->child != nullptr && process->child->running()) {
      pids[process->name] = process->child->pid();
    }
  }
  return ReplaceFileAtomically(*files_, options_.pid_file, absl::StrCat(pids.dump(2), "\n"));
}

}  // namespace muster
