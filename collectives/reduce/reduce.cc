#include "collectives/reduce/reduce.h"

#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "collectives/reduce/reduce_kernels.h"

namespace muster {
namespace {

const uint8_t* Bytes(const void* pointer) { return static_cast<const uint8_t*>(pointer); }
uint8_t* Bytes(void* pointer) { return static_cast<uint8_t*>(pointer); }

// Integer division truncates toward zero. A divisor beyond the type is larger than every element,
// which int64 takes care of.
template <typename T>
void DivideIntegers(void* data, int64_t count, int64_t divisor) {
  uint8_t* at = Bytes(data);
  for (int64_t i = 0; i < count; ++i, at += sizeof(T)) {
    T value;
    std::memcpy(&value, at, sizeof(T));
    value = static_cast<T>(value / divisor);
    std::memcpy(at, &value, sizeof(T));
  }
}

}  // namespace

absl::string_view ReduceTargetName() { return reduce_internal::TargetName(); }

void ReduceInto(DType dtype, ReduceOp op, void* target, const void* incoming, const void* local,
                int64_t count) {
  MUSTER_CHECK_GE(count, 0);
  reduce_internal::ReducePair(dtype, op, Bytes(target), Bytes(incoming), Bytes(local),
                              static_cast<size_t>(count));
}

void ReduceMany(DType dtype, ReduceOp op, void* target, absl::Span<const void* const> sources,
                int64_t count, int64_t divisor) {
  ReduceManyInto(dtype, op, {&target, 1}, sources, count, divisor, /*past_caches=*/false);
}

void ReduceManyInto(DType dtype, ReduceOp op, absl::Span<void* const> targets,
                    absl::Span<const void* const> sources, int64_t count, int64_t divisor,
                    bool past_caches) {
  MUSTER_CHECK_GE(count, 0);
  MUSTER_CHECK(!sources.empty() && !targets.empty());
  MUSTER_CHECK_GE(divisor, 1);
  MUSTER_CHECK(divisor == 1 || op == ReduceOp::kAverage)
      << "a " << std::string(Name(op)) << " is not divided";
  const bool divides_after = divisor != 1 && !IsFloatingPoint(dtype);
  static_assert(sizeof(void*) == sizeof(uint8_t*));
  reduce_internal::ReduceAll(
      dtype, op, reinterpret_cast<uint8_t* const*>(targets.data()), targets.size(),
      reinterpret_cast<const uint8_t* const*>(sources.data()), sources.size(),
      static_cast<size_t>(count), divisor, past_caches && !divides_after);
  for (void* target : targets) {
    if (divides_after) ScaleForAverage(dtype, target, count, divisor);
  }
}

void ScaleForAverage(DType dtype, void* data, int64_t count, int64_t divisor) {
  MUSTER_CHECK_GE(count, 0);
  MUSTER_CHECK_GE(divisor, 1);
  if (divisor == 1) return;
  switch (dtype) {
    case DType::kF32:
    case DType::kF64:
    case DType::kF16:
    case DType::kBF16: {
      const void* const source = data;
      return ReduceMany(dtype, ReduceOp::kAverage, data, {&source, 1}, count, divisor);
    }
    case DType::kI32:
      return DivideIntegers<int32_t>(data, count, divisor);
    case DType::kI64:
      return DivideIntegers<int64_t>(data, count, divisor);
    case DType::kU8:
      return DivideIntegers<uint8_t>(data, count, divisor);
  }
}

}  // namespace muster
