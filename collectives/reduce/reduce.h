// Element-wise reduction of arrays on the CPU, vectorised for the machine it runs on.
//
// Numbers (the same bits on every SIMD target and for every alignment and length):
//   - floats: IEEE operations of the element type, round to nearest even, no contraction, no
//     flush-to-zero. A NaN result of sum, average or product is a NaN of unspecified payload. min
//     and max are IEEE 754-2019 minimum and maximum: -0 is less than +0; if either side is NaN the
//     result is the quiet NaN of positive sign and no payload.
//   - f16, bf16: widened to f32, reduced in f32, rounded to nearest even once per call.
//   - integers: sum and product wrap (two's complement, modulo 2^bits). An average divides the
//     wrapped sum and truncates toward zero.
//   - a reduction starts with its first operand, not with a neutral element, so sums keep -0.
//
// Every function is pure but for `target`, thread-safe for disjoint targets, and takes pointers of
// any alignment. Counts are elements; 0 is allowed, and pointers may then be null.
#ifndef MUSTER_COLLECTIVES_REDUCE_REDUCE_H_
#define MUSTER_COLLECTIVES_REDUCE_REDUCE_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "collectives/reduce/reduce_op.h"

namespace muster {

// target[i] = incoming[i] op local[i]; kAverage adds. `target` may be `incoming` or `local` or
// overlap neither. Rounds 16-bit types at each call: a sum of more than two terms belongs in
// ReduceMany.
void ReduceInto(DType dtype, ReduceOp op, void* target, const void* incoming, const void* local,
                int64_t count);

// target[i] = (sources[0][i] op sources[1][i] op ...) / divisor, left to right; `divisor` is the
// number of contributions where this call completes an average, otherwise 1. 16-bit types are
// summed and divided in f32 and rounded once. `target` may be any of the sources or overlap none.
// Requires: at least one source; divisor >= 1, and 1 unless op is kAverage.
void ReduceMany(DType dtype, ReduceOp op, void* target, absl::Span<const void* const> sources,
                int64_t count, int64_t divisor = 1);

// The same into several targets, which may each be any of the sources or overlap none; none overlap
// each other. With `past_caches` the results bypass the caches where alignment allows: for results
// that will not be read before they would have been evicted. Requires: at least one target.
void ReduceManyInto(DType dtype, ReduceOp op, absl::Span<void* const> targets,
                    absl::Span<const void* const> sources, int64_t count, int64_t divisor,
                    bool past_caches);

// data[i] /= divisor: floats correctly rounded (a division, not a product with 1/divisor; 16-bit
// types in f32), integers truncated toward zero. Requires: divisor >= 1.
void ScaleForAverage(DType dtype, void* data, int64_t count, int64_t divisor);

// The SIMD target in use, for logs: "AVX3".
absl::string_view ReduceTargetName();

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_REDUCE_REDUCE_H_
