// What reduce.h must compute, one element at a time and without vectors.
#ifndef MUSTER_TESTS_COLLECTIVES_REDUCE_REDUCE_ORACLE_H_
#define MUSTER_TESTS_COLLECTIVES_REDUCE_REDUCE_ORACLE_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "base/dtype.h"
#include "base/float16.h"
#include "collectives/reduce/reduce_op.h"

namespace muster::oracle {

template <typename T>
T ReadAs(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
void WriteAs(uint8_t* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

template <typename F>
F CombineFloats(ReduceOp op, F a, F b) {
  const bool is_nan = std::isnan(a) || std::isnan(b);
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return a + b;
    case ReduceOp::kProduct:
      return a * b;
    case ReduceOp::kMin:
      if (is_nan) return std::numeric_limits<F>::quiet_NaN();
      if (a == 0 && b == 0) return std::signbit(a) ? a : b;
      return a < b ? a : b;
    case ReduceOp::kMax:
      if (is_nan) return std::numeric_limits<F>::quiet_NaN();
      if (a == 0 && b == 0) return std::signbit(a) ? b : a;
      return a < b ? b : a;
  }
  return a;
}

template <typename T>
T CombineIntegers(ReduceOp op, T a, T b) {
  // Exact in 128 bits (products of 64-bit values fit), then cut to the type.
  const __int128 x = a, y = b;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return static_cast<T>(x + y);
    case ReduceOp::kProduct:
      return static_cast<T>(x * y);
    case ReduceOp::kMin:
      return a < b ? a : b;
    case ReduceOp::kMax:
      return a < b ? b : a;
  }
  return a;
}

// Calls visit with a load function and a store function over the type that is computed with.
template <typename F, typename Load, typename Store>
void FloatElement(ReduceOp op, const std::vector<const uint8_t*>& sources, int64_t divisor,
                  Load load, Store store) {
  F value = load(sources[0]);
  for (size_t k = 1; k < sources.size(); ++k) value = CombineFloats<F>(op, value, load(sources[k]));
  if (divisor != 1) value /= static_cast<F>(divisor);
  store(value);
}

template <typename T>
void IntegerElement(ReduceOp op, const std::vector<const uint8_t*>& sources, int64_t divisor,
                    uint8_t* target) {
  T value = ReadAs<T>(sources[0]);
  for (size_t k = 1; k < sources.size(); ++k) {
    value = CombineIntegers<T>(op, value, ReadAs<T>(sources[k]));
  }
  WriteAs<T>(target, static_cast<T>(value / divisor));
}

// One element; `sources` and `target` point at it.
inline void ReduceElement(DType dtype, ReduceOp op, const std::vector<const uint8_t*>& sources,
                          int64_t divisor, uint8_t* target) {
  switch (dtype) {
    case DType::kF32:
      return FloatElement<float>(op, sources, divisor, ReadAs<float>,
                                 [&](float value) { WriteAs(target, value); });
    case DType::kF64:
      return FloatElement<double>(op, sources, divisor, ReadAs<double>,
                                  [&](double value) { WriteAs(target, value); });
    case DType::kF16:
      return FloatElement<float>(
          op, sources, divisor, [](const uint8_t* p) { return F16ToF32(ReadAs<uint16_t>(p)); },
          [&](float value) { WriteAs(target, F32ToF16(value)); });
    case DType::kBF16:
      return FloatElement<float>(
          op, sources, divisor, [](const uint8_t* p) { return BF16ToF32(ReadAs<uint16_t>(p)); },
          [&](float value) { WriteAs(target, F32ToBF16(value)); });
    case DType::kI32:
      return IntegerElement<int32_t>(op, sources, divisor, target);
    case DType::kI64:
      return IntegerElement<int64_t>(op, sources, divisor, target);
    case DType::kU8:
      return IntegerElement<uint8_t>(op, sources, divisor, target);
  }
}

inline bool IsNan(DType dtype, const uint8_t* element) {
  switch (dtype) {
    case DType::kF32:
      return std::isnan(ReadAs<float>(element));
    case DType::kF64:
      return std::isnan(ReadAs<double>(element));
    case DType::kF16:
      return std::isnan(F16ToF32(ReadAs<uint16_t>(element)));
    case DType::kBF16:
      return std::isnan(BF16ToF32(ReadAs<uint16_t>(element)));
    case DType::kI32:
    case DType::kI64:
    case DType::kU8:
      return false;
  }
  return false;
}

}  // namespace muster::oracle

#endif  // MUSTER_TESTS_COLLECTIVES_REDUCE_REDUCE_ORACLE_H_
