// What a job says of its model. Plain values.
#ifndef MUSTER_WORKER_MODEL_MODEL_CONFIG_H_
#define MUSTER_WORKER_MODEL_MODEL_CONFIG_H_

#include <cstdint>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/job_spec.h"

namespace muster {

// input -> (linear, ReLU) for each hidden size -> linear -> classes.
// Parameters fc1.weight [out, in], fc1.bias [out], fc2.weight, ... One block per linear layer.
//
// `tie_weights`: of the layers between hidden ones, which then read the same from both ends, each
// of the second half has the transpose of its mirror image's weight, as in an autoencoder, and only
// a bias of its own: with hidden sizes a, b, a that is fc3 = transpose of fc2, of a -> b.
struct MlpConfig {
  int64_t input = 784;
  std::vector<int64_t> hidden = {256, 128};
  int64_t classes = 10;
  bool tie_weights = false;
};

// (3x3 convolution with padding 1, ReLU, 2x2 max-pool) for each of conv_channels -> linear, ReLU
// -> linear -> classes. Pooling drops an odd last row or column.
// Parameters conv1.weight [out, in, 3, 3], conv1.bias, ..., fc1.weight, fc1.bias, fc2.weight,
// fc2.bias; fc1 reads channels, height, width, as after torch.flatten. One block per convolution or
// linear layer.
struct CnnConfig {
  int64_t height = 28;
  int64_t width = 28;
  int64_t channels = 1;
  std::vector<int64_t> conv_channels = {16, 32};
  int64_t hidden = 128;
  int64_t classes = 10;
};

struct ModelConfig {
  std::variant<MlpConfig, CnnConfig> architecture;
  int64_t bucket_elements = 262'144;  // largest gradient bucket: 1 MiB of f32
  // Which tensors train and how (state/parameter_groups.h); goes into the layout.
  std::vector<ParameterGroupSpec> groups;
};

// "mlp", "cnn".
absl::string_view TypeName(const ModelConfig& config);

// INVALID_ARGUMENT names the field ("model.mlp.hidden[1]"), the limits and what it is.
absl::Status Validate(const ModelConfig& config);

}  // namespace muster

#endif  // MUSTER_WORKER_MODEL_MODEL_CONFIG_H_
