// Mixed-precision state: parameters and gradients in a 16-bit float format, which compute works
// with, beside f32 master weights, which update rules move. (Micikevicius et al., "Mixed Precision
// Training", ICLR 2018, section 3.1.) With AdamW that is 2 + 2 + 12 bytes per parameter.
//
// Updates are those of the rule in f32: a 16-bit gradient is widened, which is exact, the master
// weights move, and the 16-bit parameters become their values rounded to nearest, ties to even.
// They are never read here. Work goes in blocks through a small buffer, so that no f32 copy of the
// gradient is made; the bits are those of the whole space at once, however it is cut.
//
// Thread-safe for disjoint ranges.
#ifndef MUSTER_STATE_MIXED_PRECISION_H_
#define MUSTER_STATE_MIXED_PRECISION_H_

#include <cstdint>

#include "absl/types/span.h"
#include "base/dtype.h"
#include "state/gradient_norm.h"
#include "state/layout.h"
#include "state/range.h"
#include "state/tensor_sums.h"
#include "state/update_rule.h"

namespace muster {

// What a holder of a range keeps of it; borrowed. Every span has range.count elements. A holder
// that trains everything in the range needs master and state only there: frozen tensors can be left
// out by cutting at Layout::trained_ranges().
struct MixedPrecisionRange {
  Range range;
  DType dtype = DType::kBF16;           // kBF16 or kF16: of gradient and parameters
  absl::Span<const uint16_t> gradient;  // the sum over all contributors
  absl::Span<uint16_t> parameters;      // empty: compute works with the masters
  absl::Span<float> master;
  absl::Span<const absl::Span<float>> state;  // one per slot of the rule, as UpdateRule::Apply's
};

// AddTrainedSquares (state/clip_norm.h) for a 16-bit gradient: the exact squares of its values.
void AddTrainedSquares(const Layout& layout, const MixedPrecisionRange& range, SquaredSum& sum);

// UpdateRule::Prepare and UpdateRule::Apply for the range; the contract of a step over shards is
// theirs. Apply writes `parameters` of the whole range, frozen elements included: there it repeats
// the value they have.
void Prepare(const UpdateRule& rule, const MixedPrecisionRange& range, const UpdateScalars& scalars,
             TensorSums& sums);
void Apply(const UpdateRule& rule, const MixedPrecisionRange& range, const UpdateScalars& scalars);

// parameters = master, rounded: for first values, and after a load.
void RoundParameters(const MixedPrecisionRange& range);

}  // namespace muster

#endif  // MUSTER_STATE_MIXED_PRECISION_H_
