// A block: the unit of a model at which synchronisation hooks in. Internal to worker/model/.
//
// A block knows its shapes, where its parameters lie, and how to go forward and back; its scratch
// is sized by Reserve. Backward belongs to the Forward before it, with the same batch, input and
// output. Not thread-safe.
#ifndef MUSTER_WORKER_MODEL_BLOCK_H_
#define MUSTER_WORKER_MODEL_BLOCK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/check.h"
#include "state/layout.h"
#include "worker/device/device.h"
#include "worker/model/block_memory.h"

namespace muster::internal {

// Where a block adds its gradients.
struct BlockGradients {
  float* own = nullptr;                 // laid out like its parameters
  absl::InlinedVector<float*, 2> tied;  // each of Layout::TiedTensors(block); null: nobody needs it
};

class Block {
 public:
  virtual ~Block() = default;

  // Floats per sample.
  virtual int64_t input_size() const = 0;
  virtual int64_t output_size() const = 0;

  // Appends the block's tensors, and enters it as a reader of what it reads of blocks before it;
  // `block` is its number.
  virtual void DescribeParameters(int block, std::vector<TensorSpec>& tensors) const = 0;
  // Looks the tensors up. Called once, before everything below.
  virtual void Bind(const Layout& layout) = 0;

  // Makes room for batches of up to `batch` samples.
  virtual absl::Status Reserve(Device& device, int64_t batch) = 0;

  // Reads input[batch, input_size], writes output[batch, output_size].
  virtual absl::Status Forward(Device& device, const BlockParameters& parameters, int64_t batch,
                               const float* input, float* output) = 0;

  // Adds to `gradients`, and writes input_gradient unless it is null. Overwrites output_gradient.
  virtual absl::Status Backward(Device& device, const BlockParameters& parameters, int64_t batch,
                                const float* input, const float* output, float* output_gradient,
                                float* input_gradient, const BlockGradients& gradients) = 0;
};

// The weights and bias of one layer: weight [out, ...] and bias [out], named "<layer>.weight" and
// "<layer>.bias", both uniform in +-1/sqrt(fan_in) as PyTorch draws them; only weights decay. The
// weight of a tied layer is another one's (`weight_of`, of an earlier block): it has only its bias.
class LayerParameters {
 public:
  LayerParameters(std::string layer, std::vector<int64_t> weight_shape, std::string weight_of = "");

  void Describe(int block, std::vector<TensorSpec>& tensors) const;
  void Bind(const Layout& layout);

  bool tied() const { return !weight_of_.empty(); }
  // From the block's first element; of a tied layer there is no weight.
  int64_t weight_offset() const { return weight_offset_; }
  int64_t bias_offset() const { return bias_offset_; }

 private:
  std::string layer_;
  std::vector<int64_t> weight_shape_;
  std::string weight_of_;
  int64_t weight_offset_ = -1;
  int64_t bias_offset_ = -1;
};

}  // namespace muster::internal

#endif  // MUSTER_WORKER_MODEL_BLOCK_H_
