#include "collectives/reduce/reduce_op.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace muster {

absl::string_view Name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAverage:
      return "average";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kProduct:
      return "product";
  }
  return "unknown reduction";
}

absl::StatusOr<ReduceOp> ReduceOpFromName(absl::string_view name) {
  for (const ReduceOp op : kAllReduceOps) {
    if (Name(op) == name) return op;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "reduction '", name, "' is unknown; expected one of sum, average, min, max, product"));
}

absl::StatusOr<ReduceOp> ReduceOpFromWire(uint32_t value) {
  for (const ReduceOp op : kAllReduceOps) {
    if (static_cast<uint32_t>(op) == value) return op;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("reduction number ", value, " is unknown; expected 1 to 5"));
}

}  // namespace muster
