// The one table of element types. Code that depends on the type switches over DType without a
// default, so that a new row is a compile error wherever it is not handled.
#ifndef MUSTER_BASE_DTYPE_H_
#define MUSTER_BASE_DTYPE_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster {

// The numeric values are wire format: never renumber.
enum class DType : uint8_t {
  kF32 = 1,
  kF64 = 2,
  kF16 = 3,
  kBF16 = 4,
  kI32 = 5,
  kI64 = 6,
  kU8 = 7,
};

inline constexpr DType kAllDTypes[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16,
                                       DType::kI32, DType::kI64, DType::kU8};

// Bytes of one element.
size_t SizeOf(DType dtype);

// Muster's name ("f32") and the one safetensors files use ("F32").
absl::string_view Name(DType dtype);
absl::string_view SafetensorsName(DType dtype);

// True for f16 and bf16, whose sums are accumulated in f32 and rounded once.
bool IsHalfPrecision(DType dtype);
bool IsFloatingPoint(DType dtype);

// INVALID_ARGUMENT names the accepted values.
absl::StatusOr<DType> DTypeFromName(absl::string_view name);
absl::StatusOr<DType> DTypeFromSafetensorsName(absl::string_view name);
absl::StatusOr<DType> DTypeFromWire(uint32_t value);

}  // namespace muster

#endif  // MUSTER_BASE_DTYPE_H_
