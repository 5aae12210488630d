#include "base/dtype.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace muster {
namespace {

struct Row {
  DType dtype;
  size_t size;
  const char* name;
  const char* safetensors_name;
};

constexpr Row kRows[] = {
    {DType::kF32, 4, "f32", "F32"}, {DType::kF64, 8, "f64", "F64"},
    {DType::kF16, 2, "f16", "F16"}, {DType::kBF16, 2, "bf16", "BF16"},
    {DType::kI32, 4, "i32", "I32"}, {DType::kI64, 8, "i64", "I64"},
    {DType::kU8, 1, "u8", "U8"},
};

const Row& RowOf(DType dtype) {
  for (const Row& row : kRows) {
    if (row.dtype == dtype) return row;
  }
  MUSTER_CHECK(false) << "dtype " << static_cast<int>(dtype) << " has no row";
  __builtin_unreachable();  // a failed check does not return
}

absl::StatusOr<DType> Find(absl::string_view name, const char* Row::*column) {
  std::string accepted;
  for (const Row& row : kRows) {
    if (name == row.*column) return row.dtype;
    absl::StrAppend(&accepted, accepted.empty() ? "" : ", ", row.*column);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("element type '", name, "' is unknown; expected one of ", accepted));
}

}  // namespace

size_t SizeOf(DType dtype) { return RowOf(dtype).size; }
absl::string_view Name(DType dtype) { return RowOf(dtype).name; }
absl::string_view SafetensorsName(DType dtype) { return RowOf(dtype).safetensors_name; }

bool IsHalfPrecision(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }

bool IsFloatingPoint(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || IsHalfPrecision(dtype);
}

absl::StatusOr<DType> DTypeFromName(absl::string_view name) { return Find(name, &Row::name); }

absl::StatusOr<DType> DTypeFromSafetensorsName(absl::string_view name) {
  return Find(name, &Row::safetensors_name);
}

absl::StatusOr<DType> DTypeFromWire(uint32_t value) {
  for (const Row& row : kRows) {
    if (static_cast<uint32_t>(row.dtype) == value) return row.dtype;
  }
  return absl::InvalidArgumentError(absl::StrCat("element type number ", value, " is unknown"));
}

}  // namespace muster
