#include "worker/model/convolution_block.h"

#include <utility>

#include "base/status_macros.h"

namespace muster::internal {
namespace {

constexpr int64_t kKernel = 3;
constexpr int64_t kFloatBytes = sizeof(float);

}  // namespace

ConvolutionBlock::ConvolutionBlock(std::string layer, const ConvolutionBlockShape& shape)
    : shape_(shape),
      layer_(std::move(layer), {shape.out_channels, shape.in_channels, kKernel, kKernel}) {}

int64_t ConvolutionBlock::input_size() const { return input_pixels() * shape_.in_channels; }

int64_t ConvolutionBlock::output_size() const { return output_pixels() * shape_.out_channels; }

void ConvolutionBlock::DescribeParameters(int block, std::vector<TensorSpec>& tensors) const {
  layer_.Describe(block, tensors);
}

void ConvolutionBlock::Bind(const Layout& layout) { layer_.Bind(layout); }

ConvolutionShape ConvolutionBlock::Convolution(int64_t batch) const {
  return {.batch = batch,
          .height = shape_.height,
          .width = shape_.width,
          .in_channels = shape_.in_channels,
          .out_channels = shape_.out_channels,
          .kernel = kKernel};
}

MaxPoolShape ConvolutionBlock::Pool(int64_t batch) const {
  return {.batch = batch,
          .height = shape_.height,
          .width = shape_.width,
          .channels = shape_.out_channels};
}

absl::Status ConvolutionBlock::Reserve(Device& device, int64_t batch) {
  if (transposes_input()) {
    MUSTER_ASSIGN_OR_RETURN(input_, device.Allocate(batch * input_size() * kFloatBytes));
  }
  if (transposes_output()) {
    MUSTER_ASSIGN_OR_RETURN(pooled_, device.Allocate(batch * output_size() * kFloatBytes));
  }
  MUSTER_ASSIGN_OR_RETURN(convolved_,
                          device.Allocate(Convolution(batch).output_size() * kFloatBytes));
  MUSTER_ASSIGN_OR_RETURN(winners_, device.Allocate(Pool(batch).output_size()));
  return absl::OkStatus();
}

absl::Status ConvolutionBlock::Forward(Device& device, const BlockParameters& parameters,
                                       int64_t batch, const float* input, float* output) {
  if (transposes_input()) {
    // Channels-first to channels-last: pixels and channels exchanged.
    MUSTER_RETURN_IF_ERROR(
        device.TransposeImages(batch, shape_.in_channels, input_pixels(), input, input_.floats()));
    input = input_.floats();
  }
  MUSTER_RETURN_IF_ERROR(
      device.ConvolutionForward(Convolution(batch), input, parameters.own + layer_.weight_offset(),
                                parameters.own + layer_.bias_offset(), convolved_.floats()));
  float* pooled = transposes_output() ? pooled_.floats() : output;
  MUSTER_RETURN_IF_ERROR(
      device.MaxPoolForward(Pool(batch), convolved_.floats(), pooled, winners_.data()));
  if (transposes_output()) {
    MUSTER_RETURN_IF_ERROR(
        device.TransposeImages(batch, output_pixels(), shape_.out_channels, pooled, output));
  }
  return device.Relu(batch * output_size(), output);
}

absl::Status ConvolutionBlock::Backward(Device& device, const BlockParameters& parameters,
                                        int64_t batch, const float* input, const float* output,
                                        float* output_gradient, float* input_gradient,
                                        const BlockGradients& gradients) {
  const ConvolutionShape convolution = Convolution(batch);
  MUSTER_RETURN_IF_ERROR(device.ReluBackward(batch * output_size(), output, output_gradient));
  const float* pooled_gradient = output_gradient;
  if (transposes_output()) {
    MUSTER_RETURN_IF_ERROR(device.TransposeImages(batch, shape_.out_channels, output_pixels(),
                                                  output_gradient, pooled_.floats()));
    pooled_gradient = pooled_.floats();
  }
  float* convolved_gradient = convolved_.floats();
  MUSTER_RETURN_IF_ERROR(
      device.MaxPoolBackward(Pool(batch), pooled_gradient, winners_.data(), convolved_gradient));
  MUSTER_RETURN_IF_ERROR(device.BiasGradient(batch * input_pixels(), shape_.out_channels,
                                             convolved_gradient,
                                             gradients.own + layer_.bias_offset()));
  MUSTER_RETURN_IF_ERROR(device.ConvolutionBackwardWeights(
      convolution, transposes_input() ? input_.floats() : input, convolved_gradient,
      gradients.own + layer_.weight_offset()));
  if (input_gradient == nullptr) return absl::OkStatus();
  // Only a model's first block reads channels-first images, and nobody asks for their gradient.
  MUSTER_CHECK(!transposes_input());
  return device.ConvolutionBackwardData(convolution, convolved_gradient,
                                        parameters.own + layer_.weight_offset(), input_gradient);
}

}  // namespace muster::internal
