#include "state/mixed_precision.h"

#include <algorithm>
#include <array>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "base/check.h"
#include "collectives/reduce/half.h"
#include "state/clip_norm.h"

namespace muster {
namespace {

// Elements whose gradient is held in f32 at a time: 32 KiB of stack.
constexpr int64_t kBlock = 8192;

// A block, and where it lies in the spans of its range.
struct Block {
  Range range;
  int64_t local = 0;
  absl::Span<const float> gradient;  // widened
};

void ForEachBlock(const MixedPrecisionRange& whole, absl::FunctionRef<void(const Block&)> visit) {
  MUSTER_CHECK_EQ(static_cast<int64_t>(whole.gradient.size()), whole.range.count);
  std::array<float, kBlock> gradient;
  for (int64_t local = 0; local < whole.range.count; local += kBlock) {
    const int64_t count = std::min(kBlock, whole.range.count - local);
    WidenHalf(whole.dtype, whole.gradient.data() + local, gradient.data(), count);
    visit({.range = {.offset = whole.range.offset + local, .count = count},
           .local = local,
           .gradient = absl::MakeConstSpan(gradient).subspan(0, count)});
  }
}

absl::InlinedVector<absl::Span<float>, 2> StateOf(const MixedPrecisionRange& whole,
                                                  const Block& block) {
  absl::InlinedVector<absl::Span<float>, 2> state;
  for (const absl::Span<float> slot : whole.state) {
    state.push_back(slot.subspan(block.local, block.range.count));
  }
  return state;
}

void CheckSizes(const MixedPrecisionRange& range) {
  MUSTER_CHECK_EQ(static_cast<int64_t>(range.master.size()), range.range.count);
  for (const absl::Span<float> slot : range.state) {
    MUSTER_CHECK_EQ(static_cast<int64_t>(slot.size()), range.range.count);
  }
}

}  // namespace

void AddTrainedSquares(const Layout& layout, const MixedPrecisionRange& range, SquaredSum& sum) {
  ForEachBlock(range, [&](const Block& block) {
    AddTrainedSquares(layout, block.range, block.gradient, sum);
  });
}

void Prepare(const UpdateRule& rule, const MixedPrecisionRange& range, const UpdateScalars& scalars,
             TensorSums& sums) {
  CheckSizes(range);
  if (rule.factor_count() == 0) return;
  ForEachBlock(range, [&](const Block& block) {
    rule.Prepare(block.range, scalars, range.master.subspan(block.local, block.range.count),
                 block.gradient, StateOf(range, block), sums);
  });
}

void Apply(const UpdateRule& rule, const MixedPrecisionRange& range, const UpdateScalars& scalars) {
  CheckSizes(range);
  const bool rounds = !range.parameters.empty();
  MUSTER_CHECK(!rounds || static_cast<int64_t>(range.parameters.size()) == range.range.count);
  ForEachBlock(range, [&](const Block& block) {
    const absl::Span<float> master = range.master.subspan(block.local, block.range.count);
    rule.Apply(block.range, scalars, master, block.gradient, StateOf(range, block));
    if (!rounds) return;
    // While the block is still in the cache.
    NarrowToHalf(range.dtype, master.data(), range.parameters.data() + block.local,
                 block.range.count);
  });
}

void RoundParameters(const MixedPrecisionRange& range) {
  CheckSizes(range);
  MUSTER_CHECK_EQ(static_cast<int64_t>(range.parameters.size()), range.range.count);
  NarrowToHalf(range.dtype, range.master.data(), range.parameters.data(), range.range.count);
}

}  // namespace muster
