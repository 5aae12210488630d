// The optimizer part of a job description. Internal to proto/convert: JobSpecFromProto calls it.
// Pure and thread-safe.
#ifndef MUSTER_PROTO_CONVERT_OPTIMIZER_H_
#define MUSTER_PROTO_CONVERT_OPTIMIZER_H_

#include "absl/status/statusor.h"
#include "base/job_spec.h"
#include "muster/v1/job.pb.h"

namespace muster {

// Resolves defaults and checks every field; whether the patterns of groups match tensors is known
// only where the model is (state/parameter_groups.h). INVALID_ARGUMENT names the field.
absl::StatusOr<OptimizerSpec> OptimizerSpecFromProto(const v1::Optimizer& optimizer);

}  // namespace muster

#endif  // MUSTER_PROTO_CONVERT_OPTIMIZER_H_
