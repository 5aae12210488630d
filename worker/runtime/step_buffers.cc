#include "worker/runtime/step_buffers.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "state/clip_norm.h"
#include "state/mixed_precision.h"

namespace muster {
namespace {

// A part of `ranges`, or nothing.
template <typename T>
void Fit(BasicPart<T>& part, bool wanted, const std::vector<Range>& ranges) {
  if (!wanted) {
    part = BasicPart<T>();
  } else if (part.ranges() != ranges) {
    part = BasicPart<T>();  // first, so that both are never here at once
    part = BasicPart<T>(ranges, 1);
  }
}

}  // namespace

StepBuffers::StepBuffers(const Layout& layout, std::shared_ptr<SharedArena> arena)
    : layout_(layout), arena_(std::move(arena)) {
  for (int block = 0; block < layout_.block_count(); ++block) {
    largest_block_ = std::max(largest_block_, layout_.RangeOfBlock(block).count);
  }
  few_blocks_ = kBlockBuffers * largest_block_ >= layout_.padded_count();
}

absl::Status StepBuffers::Allocate(ElementBuffer& buffer, DType dtype, int64_t count, bool shared) {
  if (!buffer.empty() && buffer.dtype() == dtype && buffer.count() == count) {
    return absl::OkStatus();
  }
  buffer = ElementBuffer();
  MUSTER_ASSIGN_OR_RETURN(buffer, ElementBuffer::Allocate(shared ? arena_ : nullptr, dtype, count));
  return absl::OkStatus();
}

absl::Status StepBuffers::Equip(const StepMemoryShape& shape, const std::vector<Range>& ranges) {
  const bool rounds_parameters = IsHalfPrecision(shape.parameters);
  const bool rounds_gradients = IsHalfPrecision(shape.gradients);
  const int64_t all = layout_.padded_count();
  const bool gathers = shape.computes && shape.stage == 3 && !few_blocks_;
  const bool caches = shape.computes && !gathers && (rounds_parameters || shape.stage > 0);
  // Gradients that are added up in f32 can be reduced where they are.
  const bool flat = shape.stage < 2 || (shape.accumulates && !rounds_gradients) || few_blocks_;
  shape_ = shape;
  // What goes makes room for what comes.
  if (!caches) cache_ = ElementBuffer();
  if (flat) gradient_buffers_.clear();
  if (!flat) gradient_ = ElementBuffer();
  if (!gathers) parameter_buffers_.clear();
  const bool widens_gradients = rounds_gradients && shape.computes;
  const bool widens_parameters = rounds_parameters && shape.computes;
  if (!widens_gradients) wide_gradients_ = ElementBuffer();
  if (!widens_parameters) wide_parameters_ = ElementBuffer();
  Fit(reduced_, !flat && !rounds_gradients, ranges);
  Fit(reduced_halves_, !flat && rounds_gradients, ranges);
  Fit(own_halves_, rounds_parameters && !caches, ranges);

  residuals_.Equip(shape.carries && shape.computes ? all : 0);
  if (caches) MUSTER_RETURN_IF_ERROR(Allocate(cache_, shape.parameters, all));
  if (flat) MUSTER_RETURN_IF_ERROR(Allocate(gradient_, shape.gradients, all));
  if (!flat) gradient_buffers_.resize(kBlockBuffers);
  for (ElementBuffer& buffer : gradient_buffers_) {
    MUSTER_RETURN_IF_ERROR(Allocate(buffer, shape.gradients, largest_block_));
  }
  if (gathers) parameter_buffers_.resize(static_cast<size_t>(GatheredBlocks(layout_)));
  for (ElementBuffer& buffer : parameter_buffers_) {
    MUSTER_RETURN_IF_ERROR(Allocate(buffer, shape.parameters, largest_block_));
  }
  if (widens_gradients) {
    MUSTER_RETURN_IF_ERROR(Allocate(wide_gradients_, DType::kF32,
                                    shape.accumulates ? all : largest_block_, /*shared=*/false));
  }
  if (!widens_parameters) return absl::OkStatus();
  return Allocate(wide_parameters_, DType::kF32, (1 + layout_.most_tied_blocks()) * largest_block_,
                  /*shared=*/false);
}

int64_t StepBuffers::bytes() const {
  int64_t bytes = reduced_.element_count() * static_cast<int64_t>(sizeof(float)) +
                  (reduced_halves_.element_count() + own_halves_.element_count()) *
                      static_cast<int64_t>(sizeof(uint16_t));
  const auto add = [&bytes](const ElementBuffer& buffer) {
    bytes += buffer.count() * static_cast<int64_t>(SizeOf(buffer.dtype()));
  };
  for (const ElementBuffer* buffer : {&cache_, &gradient_, &wide_gradients_, &wide_parameters_}) {
    add(*buffer);
  }
  for (const ElementBuffer& buffer : gradient_buffers_) add(buffer);
  for (const ElementBuffer& buffer : parameter_buffers_) add(buffer);
  return bytes;
}

absl::Span<uint16_t> StepBuffers::OwnHalves(Range range) {
  if (cache_.empty()) return own_halves_.Of(0, range);
  return cache_.halves().subspan(static_cast<size_t>(range.offset),
                                 static_cast<size_t>(range.count));
}

std::byte* StepBuffers::ParameterPlace(int index, int block) const {
  if (cache_.empty()) return parameter_buffers_[static_cast<size_t>(index)].at(0);
  return cache_.at(layout_.RangeOfBlock(block).offset);
}

void StepBuffers::StoreReduced(Range block, int index) {
  const ElementBuffer& buffer = gradient_buffers_[static_cast<size_t>(index)];
  const auto count = static_cast<size_t>(block.count);
  if (rounds_gradients()) {
    reduced_halves_.Put(0, block.offset, buffer.halves().subspan(0, count));
  } else {
    reduced_.Put(0, block.offset, buffer.floats().subspan(0, count));
  }
}

absl::Span<const float> StepBuffers::Reduced(Range range) const {
  if (gradient_.empty()) return reduced_.Of(0, range);
  return gradient_.floats().subspan(static_cast<size_t>(range.offset),
                                    static_cast<size_t>(range.count));
}

absl::Span<const uint16_t> StepBuffers::ReducedHalves(Range range) const {
  if (gradient_.empty()) return reduced_halves_.Of(0, range);
  return gradient_.halves().subspan(static_cast<size_t>(range.offset),
                                    static_cast<size_t>(range.count));
}

void StepBuffers::AddReducedSquares(Range range, SquaredSum& sum) const {
  if (rounds_gradients()) {
    AddTrainedSquares(layout_,
                      {.range = range, .dtype = shape_.gradients, .gradient = ReducedHalves(range)},
                      sum);
  } else {
    AddTrainedSquares(layout_, range, Reduced(range), sum);
  }
}

absl::Span<float> StepBuffers::WideGradient(int block) const {
  const Range range = layout_.RangeOfBlock(block);
  const size_t from = shape_.accumulates ? static_cast<size_t>(range.offset) : 0;
  return wide_gradients_.floats().subspan(from, static_cast<size_t>(range.count));
}

void StepBuffers::ClearGradients() {
  if (rounds_gradients()) {
    if (shape_.accumulates) std::ranges::fill(wide_gradients_.floats(), 0.0f);
  } else {
    std::ranges::fill(gradient_.floats(), 0.0f);
  }
}

absl::Status StepBuffers::Renew() {
  MUSTER_RETURN_IF_ERROR(cache_.Renew());
  MUSTER_RETURN_IF_ERROR(gradient_.Renew());
  for (ElementBuffer& buffer : gradient_buffers_) MUSTER_RETURN_IF_ERROR(buffer.Renew());
  for (ElementBuffer& buffer : parameter_buffers_) MUSTER_RETURN_IF_ERROR(buffer.Renew());
  return absl::OkStatus();
}

}  // namespace muster
