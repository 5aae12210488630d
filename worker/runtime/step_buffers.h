// What a replica needs beside its part for the steps of a view: parameters that are gathered,
// gradients under way, and the reduced gradient of the part.
//
// Memory, for P parameters and a part of q elements, with elements of e bytes for parameters and g
// for gradients (4 of f32, 2 of a 16-bit type):
//   parameters   the cache: e P in stages 1 and 2, and of a 16-bit type in stage 0 as well; stage
//   3,
//                and parameter servers: e q of a 16-bit type, else none (the part serves), and in
//                stage 3 buffers of the largest block
//   gradient     stages 0, 1: g P; stages 2, 3: g q, and buffers of the largest block. Where the
//                gradients of several micro-batches are added up: 4 P besides (of f32 instead)
//   of each 16-bit type one block in f32, for compute
//   residuals, where contributions are compressed by a codec that carries: 8 P
// Where a block reads tensors of t others (tied parameters), of parameters t blocks more.
// A parameter server has no cache; it has of gradients what stage 2 has.
// Where buffers of the largest block would be more than all blocks (there are few, or one outweighs
// the others) each block has a place of its own instead, as in stage 1, and nothing is freed when
// the stage changes.
//
// Compute works on f32, of 16-bit types on copies of single blocks; what is kept of the whole
// space, and what goes over the wire, is of the type. A contribution is rounded once, when the
// block is complete (docs/protocol.md, rule 17).
//
// Used by the training thread.
#ifndef MUSTER_WORKER_RUNTIME_STEP_BUFFERS_H_
#define MUSTER_WORKER_RUNTIME_STEP_BUFFERS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/control/state_memory.h"
#include "base/dtype.h"
#include "collectives/transport/shm/shared_arena.h"
#include "state/gradient_norm.h"
#include "state/layout.h"
#include "state/range.h"
#include "worker/compression/residuals.h"
#include "worker/runtime/element_buffer.h"
#include "worker/runtime/state_part.h"

namespace muster {

struct StepMemoryShape {
  int stage = 0;
  // Gradients of several micro-batches are added up here before they are reduced.
  bool accumulates = false;
  // False: of a parameter server, which needs neither parameters of others nor gradients of its
  // own.
  bool computes = true;
  DType parameters = DType::kF32;  // or kBF16, then of both
  DType gradients = DType::kF32;   // or one of 16 bits
  // What the codes of contributions lack is added to the next gradient (worker/compression).
  bool carries = false;
  bool operator==(const StepMemoryShape&) const = default;
};

class StepBuffers {
 public:
  // Blocks whose gradients or parameters are on their way at a time, where they have no place of
  // their own: one that is computed, one that is being reduced or gathered, and one between.
  static constexpr int kBlockBuffers = kStepBlockBuffers;
  // Of parameters also what a block reads of others, which is here as long as the block is.
  static int GatheredBlocks(const Layout& layout) {
    return std::max(kBlockBuffers, 2 + layout.most_tied_blocks());
  }

  // `layout` must outlive the object. What collectives work on lies in `arena`, if it is given.
  StepBuffers(const Layout& layout, std::shared_ptr<SharedArena> arena);

  // Makes room for what steps of this shape need beside a part of `ranges`, frees what they do not.
  // RESOURCE_EXHAUSTED.
  absl::Status Equip(const StepMemoryShape& shape, const std::vector<Range>& ranges);
  const StepMemoryShape& shape() const { return shape_; }
  // All that is allocated here.
  int64_t bytes() const;
  bool rounds_parameters() const { return IsHalfPrecision(shape_.parameters); }
  bool rounds_gradients() const { return IsHalfPrecision(shape_.gradients); }
  // Each block has a place of its own, whatever the shape: on every rank, by the layout alone.
  bool few_blocks() const { return few_blocks_; }

  // ---- parameters, in their type
  // The cache from `element` on; null if there is none.
  std::byte* Cache(int64_t element) const { return cache_.at(element); }
  // Where the parameters of a block lie in stage 3: in that buffer, or in the cache.
  std::byte* ParameterPlace(int index, int block) const;
  // Of a 16-bit type: the parameters of a range of the part.
  absl::Span<uint16_t> OwnHalves(Range range);

  // ---- gradients, in their type
  // That of the whole space from `element` on; null if there is none.
  std::byte* Gradient(int64_t element) const { return gradient_.at(element); }
  // Of the largest block, where there is none.
  std::byte* GradientBuffer(int index) const { return gradient_buffers_[index].at(0); }
  // Keeps what is held of the reduced gradient of a block, which lies in a buffer.
  void StoreReduced(Range block, int index);
  // The reduced gradient of a range of the part, by type.
  absl::Span<const float> Reduced(Range range) const;
  absl::Span<const uint16_t> ReducedHalves(Range range) const;
  // Adds its squares where it trains.
  void AddReducedSquares(Range range, SquaredSum& sum) const;

  // ---- f32 for compute, of 16-bit types
  // Of all blocks, if gradients are added up; else of one.
  absl::Span<float> WideGradient(int block) const;
  // The block that is computed (0), and each that it reads beside itself.
  absl::Span<float> WideParameters(int index) const {
    return wide_parameters_.floats().subspan(static_cast<size_t>(index * largest_block_),
                                             static_cast<size_t>(largest_block_));
  }
  // Empty unless contributions carry, and on parameter servers.
  Residuals& residuals() { return residuals_; }
  // Zeroes gradients that are added up.
  void ClearGradients();

  // Takes what collectives work on out of reach of processes that could write to it so far; the
  // values stay.
  absl::Status Renew();

 private:
  absl::Status Allocate(ElementBuffer& buffer, DType dtype, int64_t count, bool shared = true);

  const Layout& layout_;
  const std::shared_ptr<SharedArena> arena_;
  int64_t largest_block_ = 0;
  bool few_blocks_ = false;  // all together no more than the buffers
  StepMemoryShape shape_;
  ElementBuffer cache_;
  ElementBuffer gradient_;
  StatePart reduced_;
  HalfPart reduced_halves_;
  HalfPart own_halves_;
  std::vector<ElementBuffer> gradient_buffers_;
  std::vector<ElementBuffer> parameter_buffers_;
  ElementBuffer wide_gradients_;
  ElementBuffer wide_parameters_;
  Residuals residuals_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_STEP_BUFFERS_H_
