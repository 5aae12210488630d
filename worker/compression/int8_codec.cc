#include "worker/compression/int8_codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace muster {
namespace {

static_assert(std::endian::native == std::endian::little, "scales are sent as they lie in memory");

constexpr int64_t kScaleBytes = sizeof(float);
constexpr float kLargestCode = 127;
constexpr uint32_t kInfinity = 0x7f800000;
// Adding and taking away 1.5 * 2^23 rounds what is below 2^22 to a whole number.
constexpr float kRounder = 12582912.0f;

// `Count` is a constant for whole blocks, which the compiler then vectorises.
template <typename Count>
float ScaleOf(const float* values, Count count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu);
  }
  if (largest >= kInfinity) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(largest) / kLargestCode;
}

template <typename Count>
void Quantize(const float* values, float scale, int8_t* codes, Count count) {
  for (int64_t i = 0; i < count; ++i) {
    const float rounded = (values[i] / scale + kRounder) - kRounder;
    // Beyond only where the scale itself is too small to be exact.
    codes[i] = static_cast<int8_t>(
        static_cast<int32_t>(std::min(std::max(rounded, -kLargestCode), kLargestCode)));
  }
}

template <typename Count>
void Encode(const float* values, std::byte* bytes, Count count) {
  const float scale = ScaleOf(values, count);
  std::memcpy(bytes, &scale, kScaleBytes);
  auto* const codes = reinterpret_cast<int8_t*>(bytes + kScaleBytes);
  if (scale > 0) {
    Quantize(values, scale, codes, count);
  } else {
    std::memset(codes, 0, static_cast<size_t>(count));
  }
}

template <typename Count>
void Store(const int8_t* codes, float scale, float* sum, Count count) {
  for (int64_t i = 0; i < count; ++i) sum[i] = static_cast<float>(codes[i]) * scale;
}

template <typename Count>
void Accumulate(const int8_t* codes, float scale, float* sum, Count count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += static_cast<float>(codes[i]) * scale;
}

using WholeBlock = std::integral_constant<int64_t, kInt8BlockElements>;

}  // namespace

int64_t Int8BytesOf(int64_t elements) { return kScaleBytes + elements; }

void EncodeInt8(absl::Span<const float> values, absl::Span<std::byte> bytes) {
  const auto count = static_cast<int64_t>(values.size());
  MUSTER_CHECK_EQ(static_cast<int64_t>(bytes.size()), Int8BytesOf(count));
  if (count == kInt8BlockElements) {
    Encode(values.data(), bytes.data(), WholeBlock());
  } else {
    Encode(values.data(), bytes.data(), count);
  }
}

absl::Status AddInt8(absl::Span<const std::byte> bytes, int64_t elements, int64_t first,
                     bool starts, absl::Span<float> sum) {
  if (static_cast<int64_t>(bytes.size()) != Int8BytesOf(elements)) {
    return absl::DataLossError(absl::StrCat("expected ", Int8BytesOf(elements), " bytes of ",
                                            elements, " elements, got ", bytes.size()));
  }
  float scale;
  std::memcpy(&scale, bytes.data(), kScaleBytes);
  if (scale < 0 || std::isinf(scale)) {
    return absl::DataLossError(absl::StrCat("the scale of a block is ", scale));
  }
  const auto* const codes = reinterpret_cast<const int8_t*>(bytes.data() + kScaleBytes) + first;
  const auto count = static_cast<int64_t>(sum.size());
  if (count == kInt8BlockElements) {
    starts ? Store(codes, scale, sum.data(), WholeBlock())
           : Accumulate(codes, scale, sum.data(), WholeBlock());
  } else {
    starts ? Store(codes, scale, sum.data(), count) : Accumulate(codes, scale, sum.data(), count);
  }
  return absl::OkStatus();
}

}  // namespace muster
