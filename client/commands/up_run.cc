#include "client/commands/up_run.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "client/output/job_text.h"

namespace muster {
namespace {

constexpr absl::Duration kStartPatience = absl::Seconds(20);
constexpr absl::Duration kTick = absl::Milliseconds(100);
constexpr absl::Duration kStartTick = absl::Milliseconds(10);
// A worker that waits for others to leave in good order; then it is told to end at once.
constexpr absl::Duration kWorkerGrace = absl::Seconds(3);
constexpr absl::Duration kWorkerHurry = absl::Seconds(1);
constexpr absl::Duration kCoordinatorGrace = absl::Seconds(2);
constexpr absl::Duration kCancelTimeout = absl::Seconds(1);
constexpr absl::Duration kFirstRespawnDelay = absl::Milliseconds(500);
constexpr int kMaxRespawnDoublings = 5;

sigset_t RunSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&set, signal);
  return set;
}

int OpenSignals() {
  BlockRunSignals();
  const sigset_t set = RunSignals();
  const int descriptor = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  MUSTER_CHECK(descriptor >= 0) << "signalfd";
  return descriptor;
}

FleetOptions ToFleetOptions(const UpOptions& options) {
  FleetOptions fleet;
  fleet.binary_directory = options.binary_directory;
  fleet.run_directory = options.run_directory;
  fleet.listen = options.listen;
  fleet.workers = options.workers;
  fleet.servers = options.servers;
  fleet.threads = options.threads;
  fleet.heartbeat_ms = options.heartbeat_ms;
  fleet.lease_ms = options.lease_ms;
  fleet.metrics = options.metrics;
  fleet.log_level = options.log_level;
  fleet.pid_file = options.pid_file;
  return fleet;
}

std::string Prefixed(const std::string& process, absl::string_view text) {
  return absl::StrFormat("%-11s | %s", process, text);
}

FleetOptions WithLines(FleetOptions options, Console* log) {
  options.on_line = [log](const std::string& process, const LogLine& line) {
    log->Line(Prefixed(process, line.text));
  };
  return options;
}

}  // namespace

void BlockRunSignals() {
  const sigset_t set = RunSignals();
  MUSTER_CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0) << "pthread_sigmask";
}

UpRun::UpRun(const UpOptions& options, Console* console, Console* log, FileSystem* files)
    : options_(options),
      console_(console),
      log_(log),
      signals_(OpenSignals()),
      fleet_(WithLines(ToFleetOptions(options), log), files),
      display_(console, options.json) {}

UpRun::~UpRun() {
  follower_.reset();
  fleet_.Kill();
  close(signals_);
}

void UpRun::Say(const std::string& text) { log_->Line(Prefixed("muster", text)); }

absl::Status UpRun::Run(const std::optional<v1::JobDescription>& job) {
  if (job.has_value()) {
    // All there is to sum up until the job is queued.
    v1::Job asked_for;
    *asked_for.mutable_description() = *job;
    summary_.Update(asked_for);
  }
  MUSTER_RETURN_IF_ERROR(StartFleet());
  if (job.has_value()) return FollowJob(*job);
  Say("no job; submit one with the address above, or end with Ctrl-C");
  while (true) {
    Pump(kTick);
    if (interrupts_ > 0) return absl::OkStatus();
    MUSTER_RETURN_IF_ERROR(RestartDue());
    MUSTER_RETURN_IF_ERROR(Health());
  }
}

absl::Status UpRun::StartFleet() {
  MUSTER_RETURN_IF_ERROR(fleet_.StartCoordinator());
  const absl::Time deadline = absl::Now() + kStartPatience;
  while (true) {
    Pump(kStartTick);
    if (interrupts_ > 0) return absl::CancelledError("interrupted");
    if (!fleet_.coordinator_running()) {
      return absl::UnavailableError(absl::StrCat("the coordinator did not start: ", last_exit_));
    }
    MUSTER_ASSIGN_OR_RETURN(const auto address, fleet_.CoordinatorAddress());
    if (address.has_value()) {
      Say(absl::StrCat("coordinator at ", *address, "; run directory ", options_.run_directory));
      break;
    }
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("the coordinator was not ready after ", absl::FormatDuration(kStartPatience),
                       "; see ", options_.run_directory, "/logs/coordinator.log"));
    }
  }
  return fleet_.StartWorkers();
}

absl::Status UpRun::FollowJob(const v1::JobDescription& job) {
  MUSTER_ASSIGN_OR_RETURN(const auto address, fleet_.CoordinatorAddress());
  const absl::Time start = absl::Now();
  last_progress_ = start;
  follower_ = std::make_unique<JobFollower>(*address, job);
  while (true) {
    Pump(kTick);
    elapsed_ = absl::Now() - start;
    if (finished_.has_value()) return *finished_;
    if (interrupts_ > 0) return absl::CancelledError("interrupted");
    MUSTER_RETURN_IF_ERROR(RestartDue());
    MUSTER_RETURN_IF_ERROR(Health());
    MUSTER_RETURN_IF_ERROR(Stalled());
  }
}

absl::Status UpRun::Stalled() const {
  if (absl::Now() - last_progress_ <= options_.stall_timeout) return absl::OkStatus();
  std::string where = "it has not been taken";
  if (job_.has_value()) {
    where = absl::StrCat("it is ", Name(job_->state()));
    if (job_->has_view()) {
      absl::StrAppend(&where, " in view ", job_->view().epoch(), " at step ",
                      job_->progress().step());
    }
  }
  return absl::DeadlineExceededError(absl::StrCat(
      "the job has shown no progress for ", absl::FormatDuration(options_.stall_timeout), ": ",
      where, ". Logs are in ", options_.run_directory, "/logs"));
}

absl::Status UpRun::Health() const {
  if (!fleet_.coordinator_running()) {
    return absl::UnavailableError(absl::StrCat("the coordinator has ended: ", last_exit_));
  }
  const bool respawning = std::any_of(respawns_.begin(), respawns_.end(),
                                      [](const auto& entry) { return entry.second.waiting; });
  if (fleet_.running_workers() > 0 || respawning) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "no worker is left, so the job cannot go on; the last: ", last_exit_, ". Logs are in ",
      options_.run_directory, "/logs; --respawn replaces workers that die"));
}

void UpRun::Pump(absl::Duration timeout) {
  std::vector<pollfd> descriptors = {{signals_, POLLIN, 0}};
  if (follower_ != nullptr) descriptors.push_back({follower_->descriptor(), POLLIN, 0});
  fleet_.AppendDescriptors(&descriptors);
  // An interrupted poll is a tick without events.
  poll(descriptors.data(), descriptors.size(),
       static_cast<int>(absl::ToInt64Milliseconds(timeout)));
  ReadSignals();
  fleet_.ReadOutput();
  for (const Fleet::Exit& exit : fleet_.Reap()) HandleExit(exit);
  TakeNews();
}

void UpRun::ReadSignals() {
  signalfd_siginfo info;
  while (read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo == SIGCHLD) continue;
    ++interrupts_;
    if (stopping_ || interrupts_ > 1) {
      Say("killing all processes");
      fleet_.Kill();
    } else {
      Say("ending; once more to kill all at once");
    }
  }
}

void UpRun::HandleExit(const Fleet::Exit& exit) {
  last_exit_ = absl::StrCat(exit.process, " ", WaitStatusText(exit.wait_status));
  if (!exit.last_error.empty()) absl::StrAppend(&last_exit_, " (", exit.last_error, ")");
  if (stopping_) return;
  std::string consequence;
  if (exit.is_worker) {
    consequence =
        absl::StrCat("; ", fleet_.running_workers(), " of ", options_.workers, " workers run");
    if (options_.respawn) {
      Respawn& respawn = respawns_[exit.process];
      respawn.due =
          absl::Now() + kFirstRespawnDelay * (1 << std::min(respawn.deaths, kMaxRespawnDoublings));
      respawn.waiting = true;
      ++respawn.deaths;
      absl::StrAppend(&consequence, ", a new one will be started");
    }
  }
  Say(absl::StrCat(last_exit_, consequence));
}

absl::Status UpRun::RestartDue() {
  for (auto& [name, respawn] : respawns_) {
    if (!respawn.waiting || absl::Now() < respawn.due) continue;
    respawn.waiting = false;
    MUSTER_RETURN_IF_ERROR(fleet_.RestartWorker(name));
    Say(absl::StrCat(name, " was started again"));
  }
  return absl::OkStatus();
}

void UpRun::TakeNews() {
  if (follower_ == nullptr) return;
  JobFollower::News news = follower_->Take();
  if (news.job.has_value()) Show(*std::move(news.job));
  if (news.finished.has_value()) finished_ = std::move(news.finished);
}

void UpRun::Show(v1::Job job) {
  const auto place = [](const v1::Job& of) {
    return std::tuple(of.state(), of.view().epoch(), of.progress().step());
  };
  if (!job_.has_value() || place(job) != place(*job_)) last_progress_ = absl::Now();
  display_.Update(job, absl::Now());
  summary_.Update(job);
  job_ = std::move(job);
  if (on_job_) on_job_(*job_);
}

void UpRun::KillWorker(const std::string& name) {
  Say(absl::StrCat("killing ", name));
  fleet_.SignalWorker(name, SIGKILL);
}

void UpRun::Stop() {
  console_->Status("");
  stopping_ = true;
  if (follower_ != nullptr && !finished_.has_value() && fleet_.coordinator_running()) {
    // Workers that have no job leave at once. Without an answer they are told to leave anyway, and
    // the summary shows what was seen last.
    absl::StatusOr<std::optional<v1::Job>> cancelled = follower_->Cancel(
        interrupts_ > 0 ? "muster up was interrupted" : "muster up could not go on",
        kCancelTimeout);
    if (cancelled.ok() && cancelled->has_value()) Show(**std::move(cancelled));
  }
  follower_.reset();
  const auto wait = [this](absl::Duration patience, const auto& running) {
    const absl::Time deadline = absl::Now() + patience;
    while (running() && absl::Now() < deadline) Pump(kStartTick);
  };
  const auto workers_run = [this] {
    return fleet_.running_workers() + fleet_.running_servers() > 0;
  };
  fleet_.SignalWorkers(SIGTERM);
  wait(kWorkerGrace, workers_run);
  // The second signal ends a worker without waiting for the others.
  fleet_.SignalWorkers(SIGTERM);
  wait(kWorkerHurry, workers_run);
  fleet_.SignalCoordinator(SIGTERM);
  wait(kCoordinatorGrace, [this] { return fleet_.coordinator_running(); });
  fleet_.Kill();
}

}  // namespace muster
