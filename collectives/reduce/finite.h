// Finding values that are no finite numbers. Vectorised; pointers of any alignment. Thread-safe.
#ifndef MUSTER_COLLECTIVES_REDUCE_FINITE_H_
#define MUSTER_COLLECTIVES_REDUCE_FINITE_H_

#include <cstdint>
#include <optional>

#include "base/dtype.h"

namespace muster {

// Index of the first NaN or infinity among `count` values. Requires: dtype is f32, f16 or bf16.
std::optional<int64_t> FirstNonfinite(DType dtype, const void* data, int64_t count);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_REDUCE_FINITE_H_
