// Which runs `muster verify` makes of a job. Pure and thread-safe.
#ifndef MUSTER_CLIENT_VERIFY_VERIFY_PLAN_H_
#define MUSTER_CLIENT_VERIFY_VERIFY_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/control/strategy.h"
#include "muster/v1/job.pb.h"

namespace muster {

struct VerifyPlanOptions {
  int workers = 4;
  int servers = 2;  // dedicated parameter servers; 0: strategies without them only
  int64_t steps = 50;
  uint64_t seed = 0;  // of the runs with switches
  std::vector<SyncTransport> transports;
};

// When a worker is killed in a run with switches.
enum class Kill : uint8_t {
  kNone,
  kMoving,    // as soon as the first switch is decided, while the state moves
  kTraining,  // after a step by the first switch's strategy, or, if it is too short for that, as
              // soon as the second one is decided
};

struct VerifyRun {
  std::string name;  // of its directory as well: "stage-1-tcp"
  Strategy strategy;
  std::vector<StrategySwitch> switches;
  Kill kill = Kill::kNone;
  int killed_worker = 0;  // which one is
  std::string skipped;    // why the job can't run so; empty: it can
};

// INVALID_ARGUMENT if the options leave nothing to compare, or the job can't be verified with them:
// it wants other numbers of workers, or sums whose bits nobody promises.
absl::Status CheckVerifiable(const v1::JobDescription& job, const VerifyPlanOptions& options);

// The job trained by one strategy from start to end: for each transport replicated by each
// algorithm, stages 1 to 3, and parameter servers on the workers, dedicated and mixed.
// Requires: `job` is valid.
std::vector<VerifyRun> PlanStrategies(const v1::JobDescription& job,
                                      const VerifyPlanOptions& options);

// A run with three switches after random steps, each to another one of `strategies` than before;
// drawn from the seed and `number`. With a kill the first comes in the first quarter and the others
// in the second half, and a random worker is killed in between. Skipped if there are no two
// strategies. Requires: options that CheckVerifiable accepts.
VerifyRun DrawSwitches(const std::vector<Strategy>& strategies, const VerifyPlanOptions& options,
                       int number, Kill kill);

// Why bits after a death are not those of an undisturbed run of the job; empty: they are.
// Requires: `job` is valid.
std::string WhyNoDeaths(const v1::JobDescription& job);

// "worker-2"; empty if none is killed.
std::string KilledWorker(const VerifyRun& run);

// What takes the step.
Strategy StrategyAt(const VerifyRun& run, int64_t step);

// "stage 1, 1 replica, tcp; after step 12 replicated, ring, shm; ..."
std::string ScheduleText(const VerifyRun& run);

// The job of a run. All steps are taken by `options.workers`: with fewer the job waits. It writes
// checkpoints to `checkpoints` after every `every` steps (0: only at the end), keeps all, and
// evaluates nothing.
absl::StatusOr<v1::JobDescription> JobOfRun(v1::JobDescription job, const VerifyRun& run,
                                            const VerifyPlanOptions& options,
                                            const std::string& checkpoints, int64_t every);

}  // namespace muster

#endif  // MUSTER_CLIENT_VERIFY_VERIFY_PLAN_H_
