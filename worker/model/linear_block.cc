#include "worker/model/linear_block.h"

#include <utility>

#include "base/status_macros.h"

namespace muster::internal {

LinearBlock::LinearBlock(std::string layer, int64_t input, int64_t output, Activation activation,
                         std::string transpose_of)
    : input_(input),
      output_(output),
      activation_(activation),
      layer_(std::move(layer), {output, input}, std::move(transpose_of)) {}

void LinearBlock::DescribeParameters(int block, std::vector<TensorSpec>& tensors) const {
  layer_.Describe(block, tensors);
}

void LinearBlock::Bind(const Layout& layout) { layer_.Bind(layout); }

absl::Status LinearBlock::Reserve(Device&, int64_t) { return absl::OkStatus(); }

// The weight is [output, input]; that of a tied layer, as it lies there, [input, output].
absl::Status LinearBlock::Forward(Device& device, const BlockParameters& parameters, int64_t batch,
                                  const float* input, float* output) {
  const bool tied = layer_.tied();
  const float* const weight = tied ? parameters.tied[0] : parameters.own + layer_.weight_offset();
  const GemmShape shape{.transpose_b = !tied, .m = batch, .n = output_, .k = input_};
  MUSTER_RETURN_IF_ERROR(device.Gemm(shape, 1, input, weight, 0, output));
  return device.AddBias(batch, output_, parameters.own + layer_.bias_offset(), activation_, output);
}

absl::Status LinearBlock::WeightGradient(Device& device, int64_t batch, const float* input,
                                         const float* output_gradient,
                                         const BlockGradients& gradients) const {
  if (!layer_.tied()) {
    const GemmShape shape{.transpose_a = true, .m = output_, .n = input_, .k = batch};
    return device.Gemm(shape, 1, output_gradient, input, 1, gradients.own + layer_.weight_offset());
  }
  if (gradients.tied[0] == nullptr) return absl::OkStatus();
  const GemmShape shape{.transpose_a = true, .m = input_, .n = output_, .k = batch};
  return device.Gemm(shape, 1, input, output_gradient, 1, gradients.tied[0]);
}

absl::Status LinearBlock::Backward(Device& device, const BlockParameters& parameters, int64_t batch,
                                   const float* input, const float* output, float* output_gradient,
                                   float* input_gradient, const BlockGradients& gradients) {
  if (activation_ == Activation::kRelu) {
    MUSTER_RETURN_IF_ERROR(device.ReluBackward(batch * output_, output, output_gradient));
  }
  MUSTER_RETURN_IF_ERROR(
      device.BiasGradient(batch, output_, output_gradient, gradients.own + layer_.bias_offset()));
  MUSTER_RETURN_IF_ERROR(WeightGradient(device, batch, input, output_gradient, gradients));
  if (input_gradient == nullptr) return absl::OkStatus();
  const bool tied = layer_.tied();
  const float* const weight = tied ? parameters.tied[0] : parameters.own + layer_.weight_offset();
  const GemmShape shape{.transpose_b = tied, .m = batch, .n = input_, .k = output_};
  return device.Gemm(shape, 1, output_gradient, weight, 0, input_gradient);
}

}  // namespace muster::internal
