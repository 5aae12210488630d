#include "client/verify/verify_plan.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "client/job_steps.h"
#include "proto/convert/job.h"
#include "proto/convert/strategy.h"

namespace muster {
namespace {

constexpr int64_t kSwitches = 3;
constexpr int64_t kMostKept = 1000;

struct Named {
  const char* name;
  Strategy strategy;
};

std::vector<Named> StrategiesOver(SyncTransport transport, const VerifyPlanOptions& options) {
  std::vector<Named> all;
  const auto add = [&](const char* name, Strategy strategy) {
    strategy.transport = transport;
    all.push_back({name, strategy});
  };
  add("ring", {.algorithm = SyncAlgorithm::kRing});
  add("direct", {.algorithm = SyncAlgorithm::kDirect});
  if (transport == SyncTransport::kSharedMemory) {
    add("window", {.algorithm = SyncAlgorithm::kWindow});
  }
  add("stage-1", {.stage = 1});
  add("stage-2", {.stage = 2});
  add("stage-3", {.stage = 3});
  add("servers-on-workers", {.sync = SyncPath::kParameterServer});
  add("servers-dedicated", {.sync = SyncPath::kParameterServer, .servers = options.servers});
  // With as many servers as workers these own nothing.
  add("servers-mixed", {.sync = SyncPath::kParameterServer,
                        .servers = std::min(options.servers, options.workers - 1),
                        .mixed = true});
  return all;
}

std::string WhyNot(const JobSpec& spec, const Named& named, const VerifyPlanOptions& options) {
  const absl::string_view name = named.name;
  if (options.servers == 0 && (name == "servers-dedicated" || name == "servers-mixed")) {
    return "--servers is 0";
  }
  return std::string(CheckStrategy(spec, named.strategy, "strategy").message());
}

// Whether sums by this algorithm have the canonical bits.
bool IsCanonical(SyncAlgorithm algorithm) {
  switch (algorithm) {
    case SyncAlgorithm::kAutomatic:
    case SyncAlgorithm::kRing:
    case SyncAlgorithm::kDirect:
    case SyncAlgorithm::kStar:
    case SyncAlgorithm::kWindow:
    case SyncAlgorithm::kOneShot:
      return true;
    case SyncAlgorithm::kRecursiveDoubling:
    case SyncAlgorithm::kHalvingDoubling:
    case SyncAlgorithm::kDoubleTree:
    case SyncAlgorithm::kHierarchical:
      return false;
  }
  return false;
}

absl::Status CheckCanonical(absl::string_view message, SyncAlgorithm algorithm) {
  if (IsCanonical(algorithm)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      message, ".algorithm: ", Name(algorithm),
      " adds in an order of its own, for which equal bits are not promised; leave it out"));
}

std::string SwitchesName(int number, Kill kill) {
  switch (kill) {
    case Kill::kNone:
      break;
    case Kill::kMoving:
      return "switches-kill-moving";
    case Kill::kTraining:
      return "switches-kill-training";
  }
  return absl::StrCat("switches-", number);
}

// Random numbers one after the other.
class Draws {
 public:
  Draws(uint64_t seed, int number) : stream_(seed, "verify", static_cast<uint64_t>(number)) {}
  // From `least` to `most`.
  int64_t Between(int64_t least, int64_t most) {
    return least +
           static_cast<int64_t>(stream_.Below(next_++, static_cast<uint64_t>(most - least + 1)));
  }

 private:
  const RandomStream stream_;
  uint64_t next_ = 0;
};

}  // namespace

absl::Status CheckVerifiable(const v1::JobDescription& job, const VerifyPlanOptions& options) {
  if (options.workers < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--workers: expected at least 2, got ", options.workers,
        "; one worker has nobody to share with, and nobody who holds its state when it "
        "is killed"));
  }
  if (options.steps <= kSwitches) {
    return absl::InvalidArgumentError(absl::StrCat("--steps: expected at least ", kSwitches + 1,
                                                   ", so that there is room for ", kSwitches,
                                                   " switches, got ", options.steps));
  }
  MUSTER_ASSIGN_OR_RETURN(const JobSpec spec, JobSpecFromProto(job));
  const WorkersSpec& workers = spec.workers;
  if (workers.min > options.workers || workers.max < options.workers) {
    return absl::InvalidArgumentError(
        absl::StrCat("--workers: the job takes ", workers.min, " to ", workers.max,
                     " workers (workers.min, workers.max), got ", options.workers));
  }
  if (spec.communication.summation_order == CommunicationSpec::SummationOrder::kAny) {
    return absl::InvalidArgumentError(
        "communication.summation_order: with any order equal bits are not promised, so there is "
        "nothing to verify; leave it out");
  }
  MUSTER_RETURN_IF_ERROR(CheckCanonical("communication", spec.communication.algorithm));
  MUSTER_RETURN_IF_ERROR(CheckCanonical("strategy", spec.strategy.algorithm));
  for (size_t i = 0; i < spec.switches.size(); ++i) {
    MUSTER_RETURN_IF_ERROR(CheckCanonical(absl::StrCat("switches[", i, "].strategy"),
                                          spec.switches[i].strategy.algorithm));
  }
  return absl::OkStatus();
}

std::vector<VerifyRun> PlanStrategies(const v1::JobDescription& job,
                                      const VerifyPlanOptions& options) {
  const absl::StatusOr<JobSpec> spec = JobSpecFromProto(job);
  MUSTER_CHECK(spec.ok()) << spec.status();
  std::vector<VerifyRun> runs;
  for (const SyncTransport transport : options.transports) {
    for (const Named& named : StrategiesOver(transport, options)) {
      runs.push_back({.name = absl::StrCat(named.name, "-", Name(transport)),
                      .strategy = named.strategy,
                      .skipped = WhyNot(*spec, named, options)});
    }
  }
  return runs;
}

VerifyRun DrawSwitches(const std::vector<Strategy>& strategies, const VerifyPlanOptions& options,
                       int number, Kill kill) {
  VerifyRun run{.name = SwitchesName(number, kill), .kill = kill};
  if (strategies.size() < 2) {
    run.skipped = "there are no two strategies to switch between";
    return run;
  }
  Draws draws(options.seed, number);
  const int64_t last = options.steps - 1;
  std::set<int64_t> after;
  const bool kills = kill != Kill::kNone;
  if (kills) after.insert(draws.Between(1, std::max(int64_t{1}, options.steps / 4)));
  while (static_cast<int64_t>(after.size()) < kSwitches) {
    after.insert(draws.Between(kills ? options.steps / 2 : 1, last));
  }
  const auto another = [&](const Strategy& than) {
    Strategy drawn = than;
    while (drawn == than) {
      drawn = strategies[static_cast<size_t>(
          draws.Between(0, static_cast<int64_t>(strategies.size()) - 1))];
    }
    return drawn;
  };
  run.strategy = strategies[static_cast<size_t>(
      draws.Between(0, static_cast<int64_t>(strategies.size()) - 1))];
  Strategy now = run.strategy;
  for (const int64_t step : after) {
    now = another(now);
    run.switches.push_back({.after = step, .strategy = now});
  }
  if (kills) run.killed_worker = static_cast<int>(draws.Between(0, options.workers - 1));
  return run;
}

std::string WhyNoDeaths(const v1::JobDescription& job) {
  if (job.communication().gradients() != v1::Communication::TOP_K) return "";
  return "with communication.gradients TOP_K what a worker has not sent yet is lost with it, so "
         "bits differ after a death";
}

std::string KilledWorker(const VerifyRun& run) {
  return run.kill == Kill::kNone ? "" : absl::StrCat("worker-", run.killed_worker);
}

Strategy StrategyAt(const VerifyRun& run, int64_t step) {
  Strategy strategy = run.strategy;
  for (const StrategySwitch& change : run.switches) {
    if (change.after < step) strategy = change.strategy;
  }
  return strategy;
}

std::string ScheduleText(const VerifyRun& run) {
  std::string text = ToString(run.strategy);
  for (const StrategySwitch& change : run.switches) {
    absl::StrAppend(&text, "; after step ", change.after, " ", ToString(change.strategy));
  }
  return text;
}

absl::StatusOr<v1::JobDescription> JobOfRun(v1::JobDescription job, const VerifyRun& run,
                                            const VerifyPlanOptions& options,
                                            const std::string& checkpoints, int64_t every) {
  SetSteps(options.steps, &job);
  job.mutable_training()->clear_evaluate_every();
  job.mutable_data()->mutable_idx()->clear_test_images();
  job.mutable_data()->mutable_idx()->clear_test_labels();
  v1::Workers* const workers = job.mutable_workers();
  workers->set_min(options.workers);
  workers->set_start(options.workers);
  workers->set_max(options.workers);
  v1::Checkpoints* const saved = job.mutable_checkpoints();
  saved->Clear();
  saved->set_directory(checkpoints);
  saved->set_every(every);
  saved->set_keep(static_cast<int32_t>(std::clamp(options.steps, int64_t{1}, kMostKept)));
  // Strategies name their transport, too; communication.provider goes with the job's.
  job.mutable_communication()->clear_algorithm();
  *job.mutable_strategy() = ToProto(run.strategy);
  job.clear_switches();
  for (const StrategySwitch& change : run.switches) {
    v1::Switch* const added = job.add_switches();
    added->set_after_step(change.after);
    *added->mutable_strategy() = ToProto(change.strategy);
  }
  MUSTER_RETURN_IF_ERROR(Annotate(JobSpecFromProto(job).status(), run.name));
  return job;
}

}  // namespace muster
