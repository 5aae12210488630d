// Models: blocks with explicit forward and backward, parameters in the flat layout.
//
// A model owns its activations and scratch, sized by the largest batch it has seen and reused
// between calls, and no parameters: those belong to the caller (block_memory.h). All spans are
// memory that the device can address (for "cpu": any host memory).
//
// Not thread-safe: one call at a time. Same inputs, same batch size, same device: same bits.
#ifndef MUSTER_WORKER_MODEL_MODEL_H_
#define MUSTER_WORKER_MODEL_MODEL_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "state/layout.h"
#include "worker/device/device.h"
#include "worker/model/block_memory.h"
#include "worker/model/model_config.h"

namespace muster {

// Sums over the samples of one call.
struct BatchResult {
  double loss_sum = 0;  // cross-entropy, natural logarithm
  int64_t correct = 0;  // samples whose largest logit is the label's
  int64_t samples = 0;
};

class Model {
 public:
  virtual ~Model() = default;

  virtual const Layout& layout() const = 0;
  virtual int64_t features() const = 0;  // floats per sample
  virtual int64_t classes() const = 0;

  // Adds the gradient of the sum (not the mean) of the samples' losses to what memory.Gradients
  // gives; padding and blocks before the layout's first trained one are left alone. `inputs` is
  // [batch, features], row-major (images as channels, height, width). INVALID_ARGUMENT for an empty
  // batch, inputs that are not labels.size() samples, or a label outside [0, classes): the message
  // names the sample. RESOURCE_EXHAUSTED if memory is short. Errors of `memory` come back as they
  // are.
  virtual absl::StatusOr<BatchResult> ForwardBackward(BlockMemory& memory,
                                                      absl::Span<const float> inputs,
                                                      absl::Span<const int32_t> labels) = 0;
  // The forward half alone; every block is released.
  virtual absl::StatusOr<BatchResult> Evaluate(BlockMemory& memory, absl::Span<const float> inputs,
                                               absl::Span<const int32_t> labels) = 0;

  // The same over flat spaces of layout().padded_count() elements; a wrong size is a bug.
  absl::StatusOr<BatchResult> ForwardBackward(absl::Span<const float> parameters,
                                              absl::Span<const float> inputs,
                                              absl::Span<const int32_t> labels,
                                              absl::Span<float> gradients,
                                              GradientReadyHook on_block_done);
  absl::StatusOr<BatchResult> Evaluate(absl::Span<const float> parameters,
                                       absl::Span<const float> inputs,
                                       absl::Span<const int32_t> labels);
};

// `device` must outlive the model. INVALID_ARGUMENT names the field of `config` that is wrong.
absl::StatusOr<std::unique_ptr<Model>> CreateModel(const ModelConfig& config, Device& device);

// The layout that the model would have, without a device.
absl::StatusOr<Layout> CreateModelLayout(const ModelConfig& config);

}  // namespace muster

#endif  // MUSTER_WORKER_MODEL_MODEL_H_
