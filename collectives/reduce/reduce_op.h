// The one table of reduction operations. Code switches over ReduceOp without a default.
#ifndef MUSTER_COLLECTIVES_REDUCE_REDUCE_OP_H_
#define MUSTER_COLLECTIVES_REDUCE_REDUCE_OP_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster {

// The numeric values are wire format (fingerprints): never renumber.
enum class ReduceOp : uint8_t {
  kSum = 1,
  kAverage = 2,  // the sum, divided once when it is complete
  kMin = 3,
  kMax = 4,
  kProduct = 5,
};

inline constexpr ReduceOp kAllReduceOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin,
                                             ReduceOp::kMax, ReduceOp::kProduct};

// "sum", "average", ...
absl::string_view Name(ReduceOp op);

// INVALID_ARGUMENT names the accepted values.
absl::StatusOr<ReduceOp> ReduceOpFromName(absl::string_view name);
absl::StatusOr<ReduceOp> ReduceOpFromWire(uint32_t value);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_REDUCE_REDUCE_OP_H_
