// Optimizer and learning rate, of a job description or a parameter server's table. Pure and
// thread-safe.
#ifndef MUSTER_PROTO_CONVERT_OPTIMIZER_H_
#define MUSTER_PROTO_CONVERT_OPTIMIZER_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/job_spec.h"
#include "muster/v1/job.pb.h"

namespace muster {

// Resolves defaults and checks every field; whether the patterns of groups match tensors is known
// only where the model is (state/parameter_groups.h). INVALID_ARGUMENT names the field, which lies
// below `path`.
absl::StatusOr<OptimizerSpec> OptimizerSpecFromProto(const v1::Optimizer& optimizer,
                                                     absl::string_view path);

// Likewise; whether the warm-up fits the steps is known to the caller.
absl::StatusOr<LearningRateSpec> LearningRateSpecFromProto(const v1::LearningRate& rate,
                                                           absl::string_view path);

}  // namespace muster

#endif  // MUSTER_PROTO_CONVERT_OPTIMIZER_H_
