// A model that is a chain of blocks with softmax cross-entropy at the end. Internal to
// worker/model/.
#ifndef MUSTER_WORKER_MODEL_CLASSIFIER_H_
#define MUSTER_WORKER_MODEL_CLASSIFIER_H_

#include <memory>
#include <vector>

#include "worker/model/block.h"
#include "worker/model/model.h"

namespace muster::internal {

class Classifier final : public Model {
 public:
  // Each block's output is the next one's input; `layout` describes exactly these blocks.
  Classifier(std::vector<std::unique_ptr<Block>> blocks, Layout layout, Device& device);

  const Layout& layout() const override { return layout_; }
  int64_t features() const override { return blocks_.front()->input_size(); }
  int64_t classes() const override { return blocks_.back()->output_size(); }

  using Model::Evaluate;
  using Model::ForwardBackward;
  absl::StatusOr<BatchResult> ForwardBackward(BlockMemory& memory, absl::Span<const float> inputs,
                                              absl::Span<const int32_t> labels) override;
  absl::StatusOr<BatchResult> Evaluate(BlockMemory& memory, absl::Span<const float> inputs,
                                       absl::Span<const int32_t> labels) override;

 private:
  absl::Status CheckArguments(absl::Span<const float> inputs,
                              absl::Span<const int32_t> labels) const;
  absl::Status Reserve(int64_t batch);
  // The parameters of the last block stay acquired, and come back.
  absl::StatusOr<BlockParameters> Forward(BlockMemory& memory, int64_t batch, const float* inputs);
  // Before the first block's backward half: nobody has added to a tied tensor's gradient.
  absl::Status ClearTied();
  // Where `block` adds its gradients, with `own` as those of its own tensors: first comes what the
  // blocks behind it, last one first, have made of its tensors.
  absl::StatusOr<BlockGradients> GradientsOf(int block, float* own);
  // What block `index` read in the last forward pass.
  const float* InputOf(size_t index, const float* inputs) const;

  const std::vector<std::unique_ptr<Block>> blocks_;
  const Layout layout_;
  Device& device_;

  // A tensor that other blocks read as well, and the sum of their gradients of it.
  struct Tied {
    int tensor = 0;
    DeviceBuffer gradient;
  };
  std::vector<Tied> tied_;  // that train; in order of the layout

  int64_t capacity_ = 0;               // samples that the buffers hold
  std::vector<DeviceBuffer> outputs_;  // one per block
  DeviceBuffer gradient_buffers_[2];   // of the current block's output and of its input, in turn
};

}  // namespace muster::internal

#endif  // MUSTER_WORKER_MODEL_CLASSIFIER_H_
