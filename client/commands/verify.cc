#include "client/commands/verify.h"

#include <array>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/control/transport_names.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "client/commands/job_commands.h"
#include "client/commands/verify_runs.h"
#include "client/job_file.h"
#include "client/job_steps.h"
#include "client/verify/locate.h"
#include "client/verify/verify_report.h"

namespace muster {
namespace {

constexpr std::array kSwitchingRuns = {Kill::kNone, Kill::kNone, Kill::kMoving, Kill::kTraining};

absl::StatusOr<std::vector<SyncTransport>> ParseTransports(const std::vector<std::string>& names) {
  std::vector<SyncTransport> transports;
  for (const std::string& name : names) {
    const std::optional<SyncTransport> found = ParseTransport(name);
    if (found != SyncTransport::kTcp && found != SyncTransport::kSharedMemory &&
        found != SyncTransport::kLibfabric) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--transport: expected tcp, shared_memory or libfabric, got \"", name, "\""));
    }
    transports.push_back(*found);
  }
  return transports;
}

// The runs one after the other, each compared with the first that is replicated.
class Verification {
 public:
  Verification(const VerifyPlanOptions& plan, VerifyRuns* runs, Console* console)
      : plan_(plan), runs_(runs), console_(console) {}

  absl::Status RunAll(const v1::JobDescription& job) {
    const std::vector<VerifyRun> strategies = PlanStrategies(job, plan_);
    total_ = strategies.size() + kSwitchingRuns.size();
    for (const VerifyRun& run : strategies) MUSTER_RETURN_IF_ERROR(RunOne(run));
    // What can't be had here is no strategy to switch to.
    std::vector<Strategy> usable;
    for (const VerifyResult& result : results_) {
      const bool ended = result.verdict != Verdict::kSkipped && result.verdict != Verdict::kFailed;
      if (ended) usable.push_back(result.run.strategy);
    }
    int number = 0;
    for (const Kill kill : kSwitchingRuns) {
      VerifyRun run = DrawSwitches(usable, plan_, ++number, kill);
      if (kill != Kill::kNone && run.skipped.empty()) run.skipped = WhyNoDeaths(job);
      MUSTER_RETURN_IF_ERROR(RunOne(run));
    }
    return absl::OkStatus();
  }

  // Where the runs part that differ.
  absl::Status LocateAll(FileSystem& files) {
    for (VerifyResult& result : results_) {
      if (result.verdict != Verdict::kDiffers) continue;
      console_->Status(absl::StrCat("running the reference and ", result.run.name,
                                    " again to find where they part"));
      absl::Status interrupted;
      const auto noting = [&](absl::StatusOr<Rerun> rerun) {
        if (absl::IsCancelled(rerun.status())) interrupted = rerun.status();
        return rerun;
      };
      result.location = LocateDifference(
          files,
          {.reference = [&](int64_t every) { return noting(ReferenceAgain(every)); },
           .run = [&](int64_t every) { return noting(runs_->Again(result.run, every)); },
           .compare = [&](const std::string& first,
                          const std::string& second) { return runs_->Compare(first, second); }});
      MUSTER_RETURN_IF_ERROR(interrupted);
    }
    return absl::OkStatus();
  }

  const std::vector<VerifyResult>& results() const { return results_; }

 private:
  absl::Status RunOne(const VerifyRun& run) {
    console_->Status(absl::StrFormat("run %d of %d: %s", results_.size() + 1, total_, run.name));
    MUSTER_ASSIGN_OR_RETURN(VerifyResult result, runs_->Make(run));
    if (result.verdict == Verdict::kEqual) Judge(&result);
    console_->Line(ResultLine(result));
    results_.push_back(std::move(result));
    return absl::OkStatus();
  }

  void Judge(VerifyResult* result) {
    if (!reference_.has_value()) {
      if (result->run.strategy.sharded()) {
        result->verdict = Verdict::kFailed;
        result->reason = "there is no replicated run to compare it with";
        return;
      }
      result->verdict = Verdict::kReference;
      reference_ = *result;
    } else if (result->parameters_sha256 != reference_->parameters_sha256) {
      result->verdict = Verdict::kDiffers;
    }
  }

  absl::StatusOr<Rerun> ReferenceAgain(int64_t every) {
    const auto known = references_.find(every);
    if (known != references_.end()) return known->second;
    MUSTER_ASSIGN_OR_RETURN(const Rerun rerun, runs_->Again(reference_->run, every));
    references_[every] = rerun;
    return rerun;
  }

  const VerifyPlanOptions& plan_;
  VerifyRuns* const runs_;
  Console* const console_;
  size_t total_ = 0;
  std::optional<VerifyResult> reference_;
  std::map<int64_t, Rerun> references_;  // again, by the distance of checkpoints
  std::vector<VerifyResult> results_;
};

}  // namespace

int VerifyCommand(const VerifyCommandOptions& options, Console* console) {
  PosixFileSystem files;
  VerifyPlanOptions plan = options.plan;
  absl::StatusOr<std::vector<SyncTransport>> transports = ParseTransports(options.transports);
  if (!transports.ok()) return Complain(transports.status(), 2);
  plan.transports = *std::move(transports);
  if (absl::Status status = CheckCanBeWritten(files, options.json_file, "--json"); !status.ok()) {
    return Complain(status, 2);
  }
  bool shortened = false;
  const absl::StatusOr<v1::JobDescription> job =
      ReadJobFile(options.job_file, [&](v1::JobDescription* read) {
        shortened = SetSteps(plan.steps, read);
        // Each run has its own.
        read->clear_checkpoints();
        read->clear_strategy();
        read->clear_switches();
      });
  if (!job.ok()) return Complain(job.status(), 2);
  if (absl::Status status = CheckVerifiable(*job, plan); !status.ok()) return Complain(status, 2);
  if (absl::Status status = files.CreateDirectories(options.run_directory); !status.ok()) {
    return Complain(Annotate(status, "--run-directory"), 1);
  }

  console->Line(absl::StrFormat(
      "%s by %d workers, %d servers, %d steps, seed %d; runs are in %s%s", job->name(),
      plan.workers, plan.servers, plan.steps, plan.seed, options.run_directory,
      shortened ? absl::StrCat("; the warm-up is shortened to ", plan.steps / 2, " steps") : ""));
  console->Line(HeadLine());
  VerifyRuns runs({.plan = plan,
                   .binary_directory = options.binary_directory,
                   .run_directory = options.run_directory,
                   .threads = options.threads,
                   .stall_timeout = absl::Seconds(options.stall_seconds)},
                  *job, &files);
  Verification verification(plan, &runs, console);
  absl::Status status = verification.RunAll(*job);
  if (status.ok()) status = verification.LocateAll(files);
  console->Status("");
  if (!status.ok()) return Complain(status, 1);
  console->Line("");
  for (const std::string& line : ClosingLines(verification.results())) console->Line(line);
  if (!options.json_file.empty()) {
    const absl::Status written = ReplaceFileAtomically(
        files, options.json_file,
        absl::StrCat(VerifyJson(job->name(), plan, verification.results()), "\n"));
    if (!written.ok()) return Complain(Annotate(written, "--json"), 1);
  }
  if (!console->write_status().ok()) return Complain(console->write_status(), 1);
  return AllEqual(verification.results()) ? 0 : 1;
}

}  // namespace muster
