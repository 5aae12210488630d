// The vectorised loops behind reduce.h, compiled for every SIMD target and chosen at run time.
// Private to this folder; arguments are already checked.
#ifndef MUSTER_COLLECTIVES_REDUCE_REDUCE_KERNELS_H_
#define MUSTER_COLLECTIVES_REDUCE_REDUCE_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "collectives/reduce/reduce_op.h"

namespace muster::reduce_internal {

// target = first op second; `target` may be either.
void ReducePair(DType dtype, ReduceOp op, uint8_t* target, const uint8_t* first,
                const uint8_t* second, size_t count);

// Every target = (sources[0] op ... op sources[source_count - 1]) / divisor, past the caches if
// asked; targets may be sources. Integers are not divided. Requires: source_count, target_count
// >= 1.
void ReduceAll(DType dtype, ReduceOp op, uint8_t* const* targets, size_t target_count,
               const uint8_t* const* sources, size_t source_count, size_t count, int64_t divisor,
               bool past_caches);

const char* TargetName();

}  // namespace muster::reduce_internal

#endif  // MUSTER_COLLECTIVES_REDUCE_REDUCE_KERNELS_H_
