// The squared norm that a step's clipping, finite check and commit record go by: that of the
// reduced gradient over everything that trains. Frozen tensors count in neither, so that a NaN in a
// gradient nobody needs skips no step.
//
// Each element of the space is to be added exactly once over all ranks, by whoever holds its
// reduced gradient; how the space is cut does not change a bit (state/gradient_norm.h). A rank that
// keeps a replica of a range leaves that to the range's owner. Pure; thread-safe.
#ifndef MUSTER_STATE_CLIP_NORM_H_
#define MUSTER_STATE_CLIP_NORM_H_

#include "absl/types/span.h"
#include "state/gradient_norm.h"
#include "state/layout.h"
#include "state/range.h"

namespace muster {

// Adds the squares of the trained elements of `range` to `sum`. `gradient` holds exactly the
// elements of `range`; padding is zero.
void AddTrainedSquares(const Layout& layout, Range range, absl::Span<const float> gradient,
                       SquaredSum& sum);

}  // namespace muster

#endif  // MUSTER_STATE_CLIP_NORM_H_
