// Makes the runs of `muster verify`: each with a fleet of its own on this machine, as `muster up`
// does, in a directory of its own.
//
// Not thread-safe: the main thread's (client/commands/up_run.h).
#ifndef MUSTER_CLIENT_COMMANDS_VERIFY_RUNS_H_
#define MUSTER_CLIENT_COMMANDS_VERIFY_RUNS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "client/verify/locate.h"
#include "client/verify/verify_plan.h"
#include "client/verify/verify_report.h"
#include "muster/v1/job.pb.h"

namespace muster {

struct VerifyRunsOptions {
  VerifyPlanOptions plan;
  std::string binary_directory;
  std::string run_directory;  // exists
  int threads = 1;            // per worker
  absl::Duration stall_timeout = absl::InfiniteDuration();
};

class VerifyRuns {
 public:
  // `files` must outlive the object.
  VerifyRuns(VerifyRunsOptions options, v1::JobDescription job, FileSystem* files)
      : options_(std::move(options)), job_(std::move(job)), files_(files) {}

  // Fills in all but whether its parameters are right: the verdict is kEqual for a run that came to
  // its end as planned. CANCELLED if a signal came; otherwise what fails is in the result.
  absl::StatusOr<VerifyResult> Make(const VerifyRun& run);

  // The run once more, with a checkpoint after every `every` steps.
  absl::StatusOr<Rerun> Again(const VerifyRun& run, int64_t every);

  // By muster-checkpoint.
  absl::StatusOr<std::optional<ParsedDifference>> Compare(const std::string& first,
                                                          const std::string& second);

 private:
  absl::StatusOr<VerifyResult> MakeIn(const std::string& directory, const VerifyRun& run,
                                      int64_t every);

  const VerifyRunsOptions options_;
  const v1::JobDescription job_;
  FileSystem* const files_;
};

}  // namespace muster

#endif  // MUSTER_CLIENT_COMMANDS_VERIFY_RUNS_H_
