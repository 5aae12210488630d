// A linear layer, with ReLU unless it is the last: output = activation(input * weight^T + bias). A
// tied one has the transpose of another layer's weight as its weight. Internal to worker/model/.
#ifndef MUSTER_WORKER_MODEL_LINEAR_BLOCK_H_
#define MUSTER_WORKER_MODEL_LINEAR_BLOCK_H_

#include <string>
#include <vector>

#include "worker/model/block.h"

namespace muster::internal {

class LinearBlock final : public Block {
 public:
  // `transpose_of`: the layer, of an earlier block and `output` to `input`, whose weight it shares.
  LinearBlock(std::string layer, int64_t input, int64_t output, Activation activation,
              std::string transpose_of = "");

  int64_t input_size() const override { return input_; }
  int64_t output_size() const override { return output_; }
  void DescribeParameters(int block, std::vector<TensorSpec>& tensors) const override;
  void Bind(const Layout& layout) override;
  absl::Status Reserve(Device& device, int64_t batch) override;
  absl::Status Forward(Device& device, const BlockParameters& parameters, int64_t batch,
                       const float* input, float* output) override;
  absl::Status Backward(Device& device, const BlockParameters& parameters, int64_t batch,
                        const float* input, const float* output, float* output_gradient,
                        float* input_gradient, const BlockGradients& gradients) override;

 private:
  absl::Status WeightGradient(Device& device, int64_t batch, const float* input,
                              const float* output_gradient, const BlockGradients& gradients) const;

  const int64_t input_;
  const int64_t output_;
  const Activation activation_;
  LayerParameters layer_;
};

}  // namespace muster::internal

#endif  // MUSTER_WORKER_MODEL_LINEAR_BLOCK_H_
