// Convolution 3x3 with padding 1, 2x2 max-pool, ReLU. Internal to worker/model/.
//
// Pooling comes before ReLU because both orders give the same values and gradients (ReLU is
// monotone, and where all of a window is negative nothing flows back), and ReLU then has a quarter
// of the work. Inside, images are channels-last, as the device wants them; the first block of a
// model reads channels-first images, the last one writes them, so that the parameters around a
// convolution have PyTorch's order.
#ifndef MUSTER_WORKER_MODEL_CONVOLUTION_BLOCK_H_
#define MUSTER_WORKER_MODEL_CONVOLUTION_BLOCK_H_

#include <string>
#include <vector>

#include "worker/model/block.h"

namespace muster::internal {

struct ConvolutionBlockShape {
  int64_t height = 0;  // of the input; at least 2
  int64_t width = 0;
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  bool channels_first_input = false;
  bool channels_first_output = false;
};

class ConvolutionBlock final : public Block {
 public:
  ConvolutionBlock(std::string layer, const ConvolutionBlockShape& shape);

  int64_t input_size() const override;
  int64_t output_size() const override;
  void DescribeParameters(int block, std::vector<TensorSpec>& tensors) const override;
  void Bind(const Layout& layout) override;
  absl::Status Reserve(Device& device, int64_t batch) override;
  absl::Status Forward(Device& device, const BlockParameters& parameters, int64_t batch,
                       const float* input, float* output) override;
  absl::Status Backward(Device& device, const BlockParameters& parameters, int64_t batch,
                        const float* input, const float* output, float* output_gradient,
                        float* input_gradient, const BlockGradients& gradients) override;

 private:
  ConvolutionShape Convolution(int64_t batch) const;
  MaxPoolShape Pool(int64_t batch) const;
  int64_t input_pixels() const { return shape_.height * shape_.width; }
  int64_t output_pixels() const { return (shape_.height / 2) * (shape_.width / 2); }
  // With one channel both orders are the same.
  bool transposes_input() const { return shape_.channels_first_input && shape_.in_channels > 1; }
  bool transposes_output() const { return shape_.channels_first_output && output_pixels() > 1; }

  const ConvolutionBlockShape shape_;
  LayerParameters layer_;

  DeviceBuffer input_;      // channels-last, where the block's own input is not
  DeviceBuffer convolved_;  // the convolution's output, then its gradient
  DeviceBuffer pooled_;     // channels-last, where the block's own output is not
  DeviceBuffer winners_;
};

}  // namespace muster::internal

#endif  // MUSTER_WORKER_MODEL_CONVOLUTION_BLOCK_H_
