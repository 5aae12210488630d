// Turns a job description that came from outside into a checked JobSpec. Pure and thread-safe.
#ifndef MUSTER_PROTO_CONVERT_JOB_H_
#define MUSTER_PROTO_CONVERT_JOB_H_

#include "absl/status/statusor.h"
#include "base/job_spec.h"
#include "muster/v1/job.pb.h"

namespace muster {

// Resolves defaults and checks every field. INVALID_ARGUMENT names the first field that is wrong by
// its path, what it must be and what came:
//   training.learning_rate.peak: must be a finite number > 0, got nan
// Does not touch files: paths are checked for form only.
absl::StatusOr<JobSpec> JobSpecFromProto(const v1::JobDescription& description);

}  // namespace muster

#endif  // MUSTER_PROTO_CONVERT_JOB_H_
