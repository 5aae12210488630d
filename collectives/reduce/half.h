// Conversion of arrays between f32 and the two 16-bit float formats, bit by bit as base/float16.h
// says and as the reductions do it: widening is exact, narrowing rounds to nearest, ties to even.
//
// Vectorised, the same bits on every SIMD target. Thread-safe for disjoint targets; pointers of any
// alignment; source and target must not overlap.
#ifndef MUSTER_COLLECTIVES_REDUCE_HALF_H_
#define MUSTER_COLLECTIVES_REDUCE_HALF_H_

#include <cstdint>

#include "base/dtype.h"

namespace muster {

// Both require IsHalfPrecision(dtype).
void WidenHalf(DType dtype, const uint16_t* from, float* to, int64_t count);
void NarrowToHalf(DType dtype, const float* from, uint16_t* to, int64_t count);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_REDUCE_HALF_H_
