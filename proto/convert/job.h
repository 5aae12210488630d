// Turns a job description that came from outside into a checked JobSpec. Pure and thread-safe.
#ifndef MUSTER_PROTO_CONVERT_JOB_H_
#define MUSTER_PROTO_CONVERT_JOB_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/job_spec.h"
#include "muster/v1/job.pb.h"

namespace muster {

// Resolves defaults and checks every field. INVALID_ARGUMENT names the first field that is wrong by
// its path, what it must be and what came:
//   training.learning_rate.peak: must be a finite number > 0, got nan
// Does not touch files: paths are checked for form only.
absl::StatusOr<JobSpec> JobSpecFromProto(const v1::JobDescription& description);

// A strategy; what it leaves open is as in `defaults`. `path` names it in errors.
absl::StatusOr<Strategy> StrategyFromProto(const v1::Strategy& strategy, const Strategy& defaults,
                                           absl::string_view path);
v1::Strategy ToProto(const Strategy& strategy);
// INVALID_ARGUMENT if the job can't train by that strategy.
absl::Status CheckStrategy(const JobSpec& spec, const Strategy& strategy, absl::string_view path);

}  // namespace muster

#endif  // MUSTER_PROTO_CONVERT_JOB_H_
