// Where the blocks of a model find parameters and leave gradients under each strategy: gathers the
// former ahead of their use, hands the latter to their reduction as soon as they are complete.
//
// Parameters: where the part is whole (stage 0) they are there. In stages 1 and 2 all blocks are
// gathered into the cache, once a step, in the order of the forward pass. In stage 3 each is
// gathered into a buffer when it is due, one ahead of the one in use, and forgotten after its use;
// so once for the forward and once for the backward half, but for the last block. A block that
// others read from as well (tied parameters) is gathered for each of them, unless it is still there
// for the block before.
//
// Gradients: in place where there is a flat gradient. Otherwise a block's are made in one of a few
// buffers, of which the part's are kept once they are reduced.
//
// Of 16-bit types both are there in f32 while a block is computed (step_buffers.h).
//
// All ranks of a view ask for the same blocks in the same order: who has no micro-batch (left) does
// a dry pass. One object serves one view; used by the training thread.
#ifndef MUSTER_WORKER_RUNTIME_STEP_MEMORY_H_
#define MUSTER_WORKER_RUNTIME_STEP_MEMORY_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/control/messages.h"
#include "worker/model/block_memory.h"
#include "worker/runtime/replica.h"
#include "worker/sync/gradient_exchange.h"
#include "worker/sync/parameter_gather.h"
#include "worker/sync/shard_mesh.h"

namespace muster {

class StepMemory final : public BlockMemory {
 public:
  // All must outlive the object. Requires: the replica is equipped for the view's strategy.
  StepMemory(Replica& replica, const ShardMesh& mesh, const View& view,
             const GradientExchangeOptions& options);

  // What is gathered from now on are the parameters after step - 1.
  void BeginStep(Step step);
  // The next pass over the blocks, forward and back; `reduces`: their gradients are complete with
  // it. Or a forward half alone.
  void BeginPass(bool reduces);
  void BeginForward();
  // Passes without a batch; `visit` sees the parameters of each block.
  absl::Status DryPass();
  absl::Status DryForward(absl::FunctionRef<void(int block, const float* parameters)> visit);
  // Waits until the gradients of the step are reduced.
  absl::Status FinishGradients();

  GradientExchange& exchange() { return exchange_; }
  // Why blocks could not be had or reduced, and which rank is held responsible.
  const absl::Status& mesh_status() const { return mesh_status_; }
  std::optional<Rank> culprit() const;
  // Time spent waiting for others since the last call.
  absl::Duration TakeWaited();

  // ---- BlockMemory
  absl::StatusOr<BlockParameters> Acquire(int block) override;
  void Release(int block) override;
  absl::StatusOr<float*> Gradients(int block) override;
  absl::Status GradientsReady(int block) override;

 private:
  static constexpr int kNone = -1;
  using Slots = std::vector<int>;  // which block each buffer holds

  // Of a block that is computed: itself, and those it reads from (none of what is no block).
  std::vector<int> Reads(int block) const;
  // Stage 3: starts what is missing of the blocks that are due, and of those due next as far as
  // there is room.
  void GatherAhead(int block);
  // Waits for a block and returns its parameters, in their type.
  absl::StatusOr<const std::byte*> Arrived(int block);
  // What Acquire gives.
  absl::Status Bring(int block, BlockParameters* parameters);
  // The parameters of an acquired block as compute reads them; `place` says which of the blocks
  // that are read it is.
  const float* Widened(int place, int block, const std::byte* parameters);
  // The next buffer, emptied.
  absl::StatusOr<std::byte*> TakeGradientBuffer(int block);
  // A block's turn among so many as there are buffers: the one before it in its place is finished.
  absl::Status TakeTurn(int block);
  int SlotOf(const Slots& slots, int block) const;
  void StartGather(int block);
  absl::Status KeepReduced(int slot);
  absl::Status Failed(absl::Status status);

  Replica& replica_;
  StepBuffers& buffers_;
  const Layout& layout_;
  const int stage_;
  const bool compresses_;
  GradientExchange exchange_;
  std::optional<ParameterGather> gather_;
  Step step_ = 0;
  bool reduces_ = false;
  bool turns_ = false;  // the pass comes back
  absl::Status mesh_status_;

  Slots widened_;  // whose parameters are there in f32, by place

  // Stage 3.
  Slots parameter_slots_;
  int last_acquired_ = kNone;
  int next_ = kNone;  // the block that is due next, if there is one
  // Blocks are reduced a few at a time, in turn: where some rank of the view has no flat gradient.
  const bool in_turn_;
  Slots gradient_slots_;
  int next_gradient_slot_ = 0;
};

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_STEP_MEMORY_H_
