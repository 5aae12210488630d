#include "client/commands/verify_runs.h"

#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/commands/up.h"
#include "client/commands/up_run.h"
#include "client/launcher/child_process.h"
#include "client/output/console.h"
#include "client/output/job_text.h"
#include "client/verify/run_history.h"

namespace muster {
namespace {

// A machine that is busy with the fleet itself must not take a slow worker for a dead one: who is
// killed is noticed by its connections anyhow.
constexpr int64_t kLeaseMs = 10'000;
// So that the first step after a switch is known soon, and a worker killed while others follow.
constexpr int64_t kQuickHeartbeatMs = 20;
constexpr int kPollMs = 20;

// A console in a file.
class LogFile {
 public:
  static absl::StatusOr<std::unique_ptr<LogFile>> Open(const std::string& path) {
    std::FILE* const file = std::fopen(path.c_str(), "we");
    if (file == nullptr) {
      return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
    }
    return std::unique_ptr<LogFile>(new LogFile(file));
  }
  ~LogFile() { std::fclose(file_); }
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  Console* console() { return &console_; }

 private:
  explicit LogFile(std::FILE* file) : file_(file), console_(file, false) {}

  std::FILE* const file_;
  Console console_;
};

// Of a job that asked for a transport this host hasn't (README, "A transport, provider or algorithm
// that is named and can't be had fails the job with the reason").
bool LacksTransport(const v1::Job& job) {
  return absl::StrContains(job.reason(), "communication.transport: ") ||
         absl::StrContains(job.reason(), "communication.provider: ");
}

// Whether the job has come to where the run's worker is killed.
bool IsTimeToKill(const VerifyRun& run, const v1::Job& job) {
  if (!job.has_view()) return false;
  const int64_t decided = job.view().resume().step();
  if (run.kill == Kill::kMoving) return decided >= run.switches[0].after;
  return job.progress().step() > run.switches[0].after || decided >= run.switches[1].after;
}

}  // namespace

absl::StatusOr<VerifyResult> VerifyRuns::Make(const VerifyRun& run) {
  if (run.skipped.empty()) {
    return MakeIn(JoinPath(options_.run_directory, run.name), run, /*every=*/0);
  }
  return VerifyResult{.run = run, .verdict = Verdict::kSkipped, .reason = run.skipped};
}

absl::StatusOr<VerifyResult> VerifyRuns::MakeIn(const std::string& directory, const VerifyRun& run,
                                                int64_t every) {
  VerifyResult result{.run = run};
  MUSTER_RETURN_IF_ERROR(files_->CreateDirectories(directory));
  MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<LogFile> log,
                          LogFile::Open(JoinPath(directory, "output.txt")));
  MUSTER_ASSIGN_OR_RETURN(
      const v1::JobDescription job,
      JobOfRun(job_, run, options_.plan, JoinPath(directory, "checkpoints"), every));
  UpOptions up;
  up.binary_directory = options_.binary_directory;
  up.run_directory = directory;
  up.workers = options_.plan.workers;
  // Others would wait in vain.
  int servers = run.strategy.servers;
  for (const StrategySwitch& change : run.switches) {
    servers = std::max(servers, change.strategy.servers);
  }
  up.servers = servers;
  up.threads = options_.threads;
  up.lease_ms = kLeaseMs;
  if (run.kill != Kill::kNone) up.heartbeat_ms = kQuickHeartbeatMs;
  up.respawn = true;
  up.stall_timeout = options_.stall_timeout;

  UpRun fleet(up, log->console(), log->console(), files_);
  bool killed = run.kill == Kill::kNone;
  fleet.OnJob([&](const v1::Job& state) {
    if (killed || !IsTimeToKill(run, state)) return;
    killed = true;
    fleet.KillWorker(KilledWorker(run));
  });
  const absl::Status status = fleet.Run(job);
  fleet.Stop();
  if (fleet.interrupted()) return absl::CancelledError("interrupted");
  const auto fail = [&](std::string reason) {
    result.reason = std::move(reason);
    return result;
  };
  if (!status.ok()) return fail(std::string(status.message()));
  const v1::Job& end = *fleet.job();
  result.steps = end.progress().step();
  result.parameters_sha256 = end.final_report().parameters_sha256();
  if (end.state() != v1::JOB_STATE_SUCCEEDED) {
    if (LacksTransport(end)) result.verdict = Verdict::kSkipped;
    return fail(absl::StrCat("the job ", Name(end.state()), ": ", end.reason()));
  }
  const auto steps = ReadSteps(*files_, JoinPath(JoinPath(directory, end.id()), "metrics.jsonl"));
  if (!steps.ok()) return fail(std::string(steps.status().message()));
  if (run.kill != Kill::kNone) result.killed_after = StepOfDeath(end, *steps, KilledWorker(run));
  if (std::string problem = HistoryProblem(run, options_.plan, end, *steps); !problem.empty()) {
    return fail(std::move(problem));
  }
  result.verdict = Verdict::kEqual;
  return result;
}

absl::StatusOr<Rerun> VerifyRuns::Again(const VerifyRun& run, int64_t every) {
  const std::string directory =
      JoinPath(options_.run_directory, absl::StrCat(run.name, "-again-every-", every));
  MUSTER_ASSIGN_OR_RETURN(const VerifyResult result, MakeIn(directory, run, every));
  if (result.verdict != Verdict::kEqual) {
    return absl::AbortedError(absl::StrCat("a rerun of ", run.name, " failed: ", result.reason));
  }
  return Rerun{JoinPath(directory, "checkpoints"), result.parameters_sha256};
}

absl::StatusOr<std::optional<ParsedDifference>> VerifyRuns::Compare(const std::string& first,
                                                                    const std::string& second) {
  MUSTER_ASSIGN_OR_RETURN(
      const std::unique_ptr<ChildProcess> child,
      ChildProcess::Start({JoinPath(options_.binary_directory, "muster-checkpoint"), "diff",
                           "--json", first, second}));
  std::string output;
  while (true) {
    pollfd waiting = {child->output_descriptor(), POLLIN, 0};
    poll(&waiting, child->output_descriptor() < 0 ? 0 : 1, kPollMs);
    output += child->ReadOutput();
    const std::optional<int> ended = child->Reap();
    if (!ended.has_value()) continue;
    output += child->ReadOutput();
    if (WIFEXITED(*ended) && WEXITSTATUS(*ended) <= 1) return ParseDifference(output);
    return absl::AbortedError(
        absl::StrCat("muster-checkpoint ", WaitStatusText(*ended), ": ", output));
  }
}

}  // namespace muster
