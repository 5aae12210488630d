#include "worker/runtime/step_memory.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "collectives/reduce/half.h"

namespace muster {

StepMemory::StepMemory(Replica& replica, const ShardMesh& mesh, const View& view,
                       const GradientExchangeOptions& options)
    : replica_(replica),
      buffers_(replica.buffers()),
      layout_(replica.layout()),
      stage_(view.strategy.sharded_stage()),
      compresses_(options.compression.kind != GradientCompression::Kind::kNone),
      exchange_(mesh, layout_, view, options),
      in_turn_(buffers_.Gradient(0) == nullptr ||
               (mesh.all().world_size() > view.workers() && !buffers_.few_blocks())) {
  MUSTER_CHECK_EQ(buffers_.shape().stage, stage_);
  MUSTER_CHECK(buffers_.shape().gradients == options.dtype);
  if (stage_ > 0)
    gather_.emplace(mesh, layout_, view, options.timeout, buffers_.shape().parameters);
  parameter_slots_.assign(static_cast<size_t>(StepBuffers::GatheredBlocks(layout_)), kNone);
  gradient_slots_.assign(StepBuffers::kBlockBuffers, kNone);
  widened_.assign(static_cast<size_t>(1 + layout_.most_tied_blocks()), kNone);
}

absl::Status StepMemory::Failed(absl::Status status) {
  if (mesh_status_.ok()) mesh_status_ = status;
  return status;
}

std::optional<Rank> StepMemory::culprit() const {
  if (gather_.has_value() && gather_->culprit().has_value()) return gather_->culprit();
  return exchange_.culprit();
}

absl::Duration StepMemory::TakeWaited() {
  absl::Duration waited = exchange_.TakeWaited();
  if (gather_.has_value()) waited += gather_->TakeWaited();
  return waited;
}

int StepMemory::SlotOf(const Slots& slots, int block) const {
  const auto slot = std::find(slots.begin(), slots.end(), block);
  return slot == slots.end() ? kNone : static_cast<int>(slot - slots.begin());
}

// ---- parameters ------------------------------------------------------------------------------

void StepMemory::BeginStep(Step step) {
  step_ = step;
  last_acquired_ = kNone;
  std::ranges::fill(widened_, kNone);
  if (stage_ == 1 || stage_ == 2) {
    for (int block = 0; block < layout_.block_count(); ++block) StartGather(block);
  } else if (stage_ == 3) {
    std::ranges::fill(parameter_slots_, kNone);
  }
}

void StepMemory::BeginPass(bool reduces) {
  reduces_ = reduces;
  turns_ = true;
  last_acquired_ = kNone;
}

void StepMemory::BeginForward() {
  turns_ = false;
  last_acquired_ = kNone;
}

void StepMemory::StartGather(int block) {
  std::byte* into = nullptr;
  if (stage_ == 3) {
    const int slot = SlotOf(parameter_slots_, kNone);
    MUSTER_CHECK(slot != kNone) << "no buffer is free for block " << block;
    parameter_slots_[static_cast<size_t>(slot)] = block;
    into = buffers_.ParameterPlace(slot, block);
  } else {
    into = buffers_.Cache(layout_.RangeOfBlock(block).offset);
  }
  gather_->Start(
      step_, block, [this](Range range) { return replica_.OwnParameters(range); }, into);
}

const float* StepMemory::Widened(int place, int block, const std::byte* parameters) {
  if (!buffers_.rounds_parameters() || parameters == nullptr) {
    return reinterpret_cast<const float*>(parameters);
  }
  const absl::Span<float> wide = buffers_.WideParameters(place);
  int& widened = widened_[static_cast<size_t>(place)];
  if (widened != block) {
    WidenHalf(buffers_.shape().parameters, reinterpret_cast<const uint16_t*>(parameters),
              wide.data(), layout_.RangeOfBlock(block).count);
  }
  widened = block;
  return wide.data();
}

std::vector<int> StepMemory::Reads(int block) const {
  if (block == kNone) return {};
  std::vector<int> blocks = {block};
  const std::vector<int>& tied = layout_.TiedBlocks(block);
  blocks.insert(blocks.end(), tied.begin(), tied.end());
  return blocks;
}

void StepMemory::GatherAhead(int block) {
  for (const int read : Reads(block)) {
    if (SlotOf(parameter_slots_, read) == kNone) StartGather(read);
  }
  // One ahead, in the direction of the pass.
  const bool backward = last_acquired_ != kNone && block < last_acquired_;
  const bool at_end = block == layout_.block_count() - 1;
  const bool back = backward || (at_end && turns_);
  last_acquired_ = block;
  next_ = back ? block - 1 : (at_end ? kNone : block + 1);
  if (back && next_ < layout_.first_trained_block()) next_ = kNone;
  for (const int read : Reads(next_)) {
    const bool here = SlotOf(parameter_slots_, read) != kNone;
    if (!here && SlotOf(parameter_slots_, kNone) != kNone) StartGather(read);
  }
}

absl::StatusOr<const std::byte*> StepMemory::Arrived(int block) {
  const int64_t begin = layout_.RangeOfBlock(block).offset;
  if (stage_ == 0) {
    if (buffers_.rounds_parameters()) return buffers_.Cache(begin);
    return reinterpret_cast<const std::byte*>(replica_.parameters().data() + begin);
  }
  if (gather_->started(block)) {
    if (absl::Status status = gather_->WaitFor(block); !status.ok()) return Failed(status);
  }
  if (stage_ < 3) return buffers_.Cache(begin);
  return buffers_.ParameterPlace(SlotOf(parameter_slots_, block), block);
}

absl::StatusOr<BlockParameters> StepMemory::Acquire(int block) {
  // Filled where it is returned: were it moved there, the compiler would take the list inside for
  // uninitialized.
  absl::StatusOr<BlockParameters> parameters(absl::in_place);
  if (absl::Status status = Bring(block, &*parameters); !status.ok()) {
    parameters = std::move(status);
  }
  return parameters;
}

absl::Status StepMemory::Bring(int block, BlockParameters* parameters) {
  MUSTER_RETURN_IF_ERROR(mesh_status_);
  if (stage_ == 3) GatherAhead(block);
  const std::vector<int> reads = Reads(block);
  std::vector<const float*> blocks;
  for (size_t place = 0; place < reads.size(); ++place) {
    MUSTER_ASSIGN_OR_RETURN(const std::byte* const arrived, Arrived(reads[place]));
    blocks.push_back(Widened(static_cast<int>(place), reads[place], arrived));
  }
  parameters->own = blocks[0];
  for (const int tensor : layout_.TiedTensors(block)) {
    const Tensor& tied = layout_.tensors()[static_cast<size_t>(tensor)];
    const auto place = std::ranges::find(reads, tied.spec.block) - reads.begin();
    const float* const from = blocks[static_cast<size_t>(place)];
    const int64_t begin = layout_.RangeOfBlock(tied.spec.block).offset;
    // A parameter server has none.
    parameters->tied.push_back(from == nullptr ? nullptr : from + (tied.offset - begin));
  }
  return absl::OkStatus();
}

void StepMemory::Release(int block) {
  if (stage_ != 3) return;
  const std::vector<int> due = Reads(next_);
  for (const int read : Reads(block)) {
    const int slot = SlotOf(parameter_slots_, read);
    if (slot == kNone || std::ranges::find(due, read) != due.end()) continue;
    parameter_slots_[static_cast<size_t>(slot)] = kNone;
  }
}

// ---- gradients -------------------------------------------------------------------------------

absl::StatusOr<float*> StepMemory::Gradients(int block) {
  if (buffers_.rounds_gradients()) {
    if (!buffers_.shape().computes) return static_cast<float*>(nullptr);
    const absl::Span<float> wide = buffers_.WideGradient(block);
    if (!buffers_.shape().accumulates) std::ranges::fill(wide, 0.0f);
    return wide.data();
  }
  std::byte* gradients = buffers_.Gradient(layout_.RangeOfBlock(block).offset);
  if (gradients == nullptr) {
    MUSTER_ASSIGN_OR_RETURN(gradients, TakeGradientBuffer(block));
    if (buffers_.shape().computes) {
      std::fill_n(reinterpret_cast<float*>(gradients), layout_.RangeOfBlock(block).count, 0.0f);
    }
  }
  return reinterpret_cast<float*>(gradients);
}

absl::Status StepMemory::TakeTurn(int block) {
  const int slot = next_gradient_slot_;
  next_gradient_slot_ = (slot + 1) % StepBuffers::kBlockBuffers;
  MUSTER_RETURN_IF_ERROR(KeepReduced(slot));
  gradient_slots_[static_cast<size_t>(slot)] = block;
  return absl::OkStatus();
}

absl::StatusOr<std::byte*> StepMemory::TakeGradientBuffer(int block) {
  MUSTER_RETURN_IF_ERROR(TakeTurn(block));
  return buffers_.GradientBuffer(SlotOf(gradient_slots_, block));
}

absl::Status StepMemory::GradientsReady(int block) {
  if (!reduces_) return absl::OkStatus();
  std::byte* gradients = buffers_.Gradient(layout_.RangeOfBlock(block).offset);
  float* contribution = nullptr;
  // Those without a flat gradient do so when they take a buffer.
  if (in_turn_ && gradients != nullptr) MUSTER_RETURN_IF_ERROR(TakeTurn(block));
  if (buffers_.rounds_gradients()) {
    if (gradients == nullptr) {
      MUSTER_ASSIGN_OR_RETURN(gradients, TakeGradientBuffer(block));
    }
    if (buffers_.shape().computes && compresses_) {
      absl::Span<float> gradient = buffers_.WideGradient(block);
      Residuals& residuals = buffers_.residuals();
      if (!residuals.empty()) {
        gradient = residuals.Contribution(layout_.RangeOfBlock(block), gradient);
      }
      contribution = gradient.data();
    } else if (buffers_.shape().computes) {
      // Here a contribution is rounded (rule 17).
      NarrowToHalf(buffers_.shape().gradients, buffers_.WideGradient(block).data(),
                   reinterpret_cast<uint16_t*>(gradients), layout_.RangeOfBlock(block).count);
    }
  } else if (gradients == nullptr) {
    gradients = buffers_.GradientBuffer(SlotOf(gradient_slots_, block));
  }
  exchange_.Start(step_, block, gradients, contribution);
  return absl::OkStatus();
}

// Empties a buffer: waits for its block's reduction and keeps what is this worker's.
absl::Status StepMemory::KeepReduced(int slot) {
  const int block = std::exchange(gradient_slots_[static_cast<size_t>(slot)], kNone);
  if (block == kNone) return absl::OkStatus();
  MUSTER_RETURN_IF_ERROR(mesh_status_);
  if (absl::Status status = exchange_.FinishBlock(block); !status.ok()) return Failed(status);
  if (buffers_.Gradient(0) == nullptr) buffers_.StoreReduced(layout_.RangeOfBlock(block), slot);
  return absl::OkStatus();
}

absl::Status StepMemory::FinishGradients() {
  MUSTER_RETURN_IF_ERROR(mesh_status_);
  if (!in_turn_) {
    absl::Status status = exchange_.Finish();
    return status.ok() ? status : Failed(std::move(status));
  }
  // In the order in which they were started.
  for (int i = 0; i < StepBuffers::kBlockBuffers; ++i) {
    MUSTER_RETURN_IF_ERROR(KeepReduced((next_gradient_slot_ + i) % StepBuffers::kBlockBuffers));
  }
  return absl::OkStatus();
}

// ---- dry passes ------------------------------------------------------------------------------

absl::Status StepMemory::DryForward(
    absl::FunctionRef<void(int block, const float* parameters)> visit) {
  for (int block = 0; block < layout_.block_count(); ++block) {
    if (block > 0) Release(block - 1);
    MUSTER_ASSIGN_OR_RETURN(const BlockParameters parameters, Acquire(block));
    visit(block, parameters.own);
  }
  Release(layout_.block_count() - 1);
  return absl::OkStatus();
}

absl::Status StepMemory::DryPass() {
  const int last = layout_.block_count() - 1;
  for (int block = 0; block <= last; ++block) {
    if (block > 0) Release(block - 1);
    MUSTER_RETURN_IF_ERROR(Acquire(block).status());
  }
  for (int block = last; block >= 0; --block) {
    const bool trains = block >= layout_.first_trained_block();
    if (trains && block != last) MUSTER_RETURN_IF_ERROR(Acquire(block).status());
    MUSTER_RETURN_IF_ERROR(Gradients(block).status());
    MUSTER_RETURN_IF_ERROR(GradientsReady(block));
    if (trains || block == last) Release(block);
  }
  return absl::OkStatus();
}

}  // namespace muster
