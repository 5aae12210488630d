#include "worker/model/linear_block.h"

#include <utility>

#include "base/status_macros.h"

namespace muster::internal {

LinearBlock::LinearBlock(std::string layer, int64_t input, int64_t output, Activation activation)
    : input_(input),
      output_(output),
      activation_(activation),
      layer_(std::move(layer), {output, input}) {}

void LinearBlock::DescribeParameters(int block, std::vector<TensorSpec>& tensors) const {
  layer_.Describe(block, tensors);
}

void LinearBlock::Bind(const Layout& layout) { layer_.Bind(layout); }

absl::Status LinearBlock::Reserve(Device&, int64_t) { return absl::OkStatus(); }

absl::Status LinearBlock::Forward(Device& device, const float* parameters, int64_t batch,
                                  const float* input, float* output) {
  const GemmShape shape{.transpose_b = true, .m = batch, .n = output_, .k = input_};
  MUSTER_RETURN_IF_ERROR(
      device.Gemm(shape, 1, input, parameters + layer_.weight_offset(), 0, output));
  return device.AddBias(batch, output_, parameters + layer_.bias_offset(), activation_, output);
}

absl::Status LinearBlock::Backward(Device& device, const float* parameters, int64_t batch,
                                   const float* input, const float* output, float* output_gradient,
                                   float* input_gradient, float* gradients) {
  if (activation_ == Activation::kRelu) {
    MUSTER_RETURN_IF_ERROR(device.ReluBackward(batch * output_, output, output_gradient));
  }
  MUSTER_RETURN_IF_ERROR(
      device.BiasGradient(batch, output_, output_gradient, gradients + layer_.bias_offset()));
  const GemmShape weight_shape{.transpose_a = true, .m = output_, .n = input_, .k = batch};
  MUSTER_RETURN_IF_ERROR(
      device.Gemm(weight_shape, 1, output_gradient, input, 1, gradients + layer_.weight_offset()));
  if (input_gradient == nullptr) return absl::OkStatus();
  const GemmShape input_shape{.m = batch, .n = input_, .k = output_};
  return device.Gemm(input_shape, 1, output_gradient, parameters + layer_.weight_offset(), 0,
                     input_gradient);
}

}  // namespace muster::internal
