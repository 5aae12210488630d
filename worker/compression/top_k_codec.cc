#include "worker/compression/top_k_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/float16.h"

namespace muster {
namespace {

static_assert(std::endian::native == std::endian::little, "codes are sent as they lie in memory");
static_assert(kTopKBlockElements <= int64_t{1} << 16, "indices have 16 bits");

using Magnitudes = std::array<uint32_t, kTopKBlockElements>;

// What decides between elements: their magnitude as a whole number, which orders NaN last.
uint32_t MagnitudeOf(float value) { return std::bit_cast<uint32_t>(value) & 0x7fffffffu; }

// The least magnitude that is sent, and of how many elements that have it.
struct Limit {
  uint32_t magnitude = 0;
  int64_t places = 0;
};

Limit LimitOf(absl::Span<const float> values, int64_t count) {
  const auto elements = static_cast<int64_t>(values.size());
  Magnitudes magnitudes;
  for (int64_t i = 0; i < elements; ++i) magnitudes[i] = MagnitudeOf(values[i]);
  // Where few are sent, most are out of question: as many groups as are sent have an element that
  // is no smaller than the least of the largest groups' largest.
  constexpr int64_t kGroupElements = 16;
  std::array<uint32_t, kTopKBlockElements / kGroupElements> largest;
  const int64_t groups = elements / kGroupElements;
  uint32_t bound = 0;
  if (2 * count <= groups) {
    for (int64_t g = 0; g < groups; ++g) {
      const auto first = magnitudes.begin() + g * kGroupElements;
      largest[g] = *std::max_element(first, first + kGroupElements);
    }
    const auto least = largest.begin() + count - 1;
    std::nth_element(largest.begin(), least, largest.begin() + groups, std::greater<>());
    bound = *least;
  }
  Magnitudes candidates;
  int64_t found = 0;
  for (int64_t i = 0; i < elements; ++i) {
    candidates[found] = magnitudes[i];
    found += magnitudes[i] >= bound ? 1 : 0;
  }
  const auto least = candidates.begin() + count - 1;
  std::nth_element(candidates.begin(), least, candidates.begin() + found, std::greater<>());
  return {*least, std::count(candidates.begin(), least + 1, *least)};
}

uint16_t Get(absl::Span<const std::byte> bytes, int64_t index) {
  uint16_t value;
  std::memcpy(&value, bytes.data() + 2 * index, sizeof(value));
  return value;
}

void Put(uint16_t value, int64_t index, absl::Span<std::byte> bytes) {
  std::memcpy(bytes.data() + 2 * index, &value, sizeof(value));
}

}  // namespace

int64_t TopKCountOf(int64_t elements, double fraction) {
  const auto share =
      static_cast<int64_t>(std::floor(fraction * static_cast<double>(elements) + 0.5));
  return std::clamp<int64_t>(share, 1, elements);
}

int64_t TopKBytesOf(int64_t elements, double fraction) {
  return 2 * static_cast<int64_t>(sizeof(uint16_t)) * TopKCountOf(elements, fraction);
}

void EncodeTopK(absl::Span<float> values, double fraction, absl::Span<std::byte> bytes) {
  const auto elements = static_cast<int64_t>(values.size());
  const int64_t count = TopKCountOf(elements, fraction);
  MUSTER_CHECK_LE(elements, kTopKBlockElements);
  MUSTER_CHECK_EQ(static_cast<int64_t>(bytes.size()), TopKBytesOf(elements, fraction));

  auto [limit, places] = LimitOf(values, count);
  int64_t taken = 0;
  for (int64_t i = 0; i < elements; ++i) {
    float& value = values[static_cast<size_t>(i)];
    const uint32_t magnitude = MagnitudeOf(value);
    if (magnitude < limit || (magnitude == limit && --places < 0)) continue;
    const uint16_t sent = F32ToBF16(value);
    Put(static_cast<uint16_t>(i), taken, bytes);
    Put(sent, count + taken, bytes);
    value -= BF16ToF32(sent);  // exact
    ++taken;
  }
  MUSTER_CHECK_EQ(taken, count);
}

absl::Status AddTopK(absl::Span<const std::byte> bytes, int64_t elements, double fraction,
                     int64_t first, bool starts, absl::Span<float> sum) {
  const int64_t count = TopKCountOf(elements, fraction);
  if (static_cast<int64_t>(bytes.size()) != TopKBytesOf(elements, fraction)) {
    return absl::DataLossError(absl::StrCat("expected ", TopKBytesOf(elements, fraction),
                                            " bytes of ", elements, " elements, got ",
                                            bytes.size()));
  }
  if (starts) std::fill(sum.begin(), sum.end(), 0.0f);
  const int64_t end = first + static_cast<int64_t>(sum.size());
  int64_t before = -1;
  for (int64_t k = 0; k < count; ++k) {
    const int64_t index = Get(bytes, k);
    if (index <= before || index >= elements) {
      return absl::DataLossError(
          absl::StrCat("element ", index, " follows ", before, " in a block of ", elements));
    }
    before = index;
    if (index >= first && index < end) {
      sum[static_cast<size_t>(index - first)] += BF16ToF32(Get(bytes, count + k));
    }
  }
  return absl::OkStatus();
}

}  // namespace muster
