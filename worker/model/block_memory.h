// Where the blocks of a model find their parameters and leave their gradients: what strategies hook
// into.
//
// What a block reads of other blocks (tied parameters) comes and goes with it. Its gradient is
// added to that of the tensor's own block by the model, so that each block's is complete when its
// own backward half is.
//
// A call of the model asks for blocks in this order, on its thread: forward Acquire(0), Release(0),
// Acquire(1), ...; the last block is not released before its backward half. Backward, last block
// first: Acquire (the last block is still there), Gradients, GradientsReady, Release; of blocks
// before the layout's first trained one only Gradients, to which nothing is added, and
// GradientsReady. An error ends the call at once with that error.
#ifndef MUSTER_WORKER_MODEL_BLOCK_MEMORY_H_
#define MUSTER_WORKER_MODEL_BLOCK_MEMORY_H_

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "state/layout.h"

namespace muster {

struct BlockParameters {
  const float* own = nullptr;                 // those of Layout::RangeOfBlock(block)
  absl::InlinedVector<const float*, 2> tied;  // each of Layout::TiedTensors(block)
};

class BlockMemory {
 public:
  virtual ~BlockMemory() = default;
  // What the block reads, until Release.
  virtual absl::StatusOr<BlockParameters> Acquire(int block) = 0;
  virtual void Release(int block) = 0;
  // Where the block's gradient is to be added.
  virtual absl::StatusOr<float*> Gradients(int block) = 0;
  // It is complete, as far as this call goes.
  virtual absl::Status GradientsReady(int block) = 0;
};

// Called when a block's gradients of a call are complete: last block first, block 0 last.
using GradientReadyHook = absl::FunctionRef<absl::Status(int block)>;

// Flat spaces that are all there.
class FlatMemory final : public BlockMemory {
 public:
  // `layout`, the spans and what the hook refers to must outlive the object. `gradients` may be
  // empty for a forward pass alone.
  FlatMemory(const Layout& layout, absl::Span<const float> parameters, absl::Span<float> gradients,
             GradientReadyHook ready)
      : layout_(layout), parameters_(parameters), gradients_(gradients), ready_(ready) {}

  absl::StatusOr<BlockParameters> Acquire(int block) override {
    BlockParameters parameters{.own = parameters_.data() + layout_.RangeOfBlock(block).offset};
    for (const int tensor : layout_.TiedTensors(block)) {
      parameters.tied.push_back(parameters_.data() + layout_.tensors()[tensor].offset);
    }
    return parameters;
  }
  void Release(int) override {}
  absl::StatusOr<float*> Gradients(int block) override {
    return gradients_.data() + layout_.RangeOfBlock(block).offset;
  }
  absl::Status GradientsReady(int block) override { return ready_(block); }

 private:
  const Layout& layout_;
  const absl::Span<const float> parameters_;
  const absl::Span<float> gradients_;
  const GradientReadyHook ready_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_MODEL_BLOCK_MEMORY_H_
