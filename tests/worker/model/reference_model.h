// The models written a second time: plain loops in double precision, straight from the description
// in model_config.h, sharing nothing with worker/model but the names of the parameters.
#ifndef MUSTER_TESTS_WORKER_MODEL_REFERENCE_MODEL_H_
#define MUSTER_TESTS_WORKER_MODEL_REFERENCE_MODEL_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "state/layout.h"
#include "worker/model/model_config.h"

namespace muster {

// The cross-entropy summed over the samples. `parameters` is the flat space.
double ReferenceLoss(const ModelConfig& config, const Layout& layout,
                     absl::Span<const double> parameters, absl::Span<const float> inputs,
                     absl::Span<const int32_t> labels);

}  // namespace muster

#endif  // MUSTER_TESTS_WORKER_MODEL_REFERENCE_MODEL_H_
