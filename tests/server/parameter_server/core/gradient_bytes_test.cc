#include "server/parameter_server/core/gradient_bytes.h"

#include <cmath>
#include <limits>

#include "tests/server/parameter_server/core/table_fixture.h"

namespace muster {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

// The bytes in pieces of random sizes, each in memory of its own at a random alignment.
struct Scattered {
  std::vector<std::vector<std::byte>> memory;
  std::vector<absl::Span<const std::byte>> pieces;

  Scattered(const std::vector<std::byte>& bytes, std::mt19937& random) {
    for (size_t at = 0; at < bytes.size();) {
      const size_t n =
          std::min<size_t>(bytes.size() - at, Draw(random, 0, Draw(random, 0, 3) == 0 ? 400 : 5));
      const size_t skew = Draw(random, 0, 7);
      auto& own = memory.emplace_back(skew + n);
      std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(at), n,
                  own.begin() + static_cast<ptrdiff_t>(skew));
      pieces.emplace_back(own.data() + skew, n);
      at += n;
    }
  }
};

TEST(GradientBytesTest, ReadsPiecesThatAreCutAnywhere) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const DType dtype = kDTypes[seed % 3];
    const int64_t count = Draw(random, 1, 3000);
    const std::vector<float> values = GradientOf(count, seed, 1, 0, dtype);
    const Payload payload = Encode(values, dtype);
    const Scattered scattered(payload.bytes, random);
    const GradientBytes bytes = GradientBytes::Create(dtype, scattered.pieces).value();
    ASSERT_EQ(bytes.count(), count);
    ASSERT_EQ(bytes.byte_count(), static_cast<int64_t>(payload.bytes.size()));
    for (const Range part : RandomChunks({0, count}, 700, random)) {
      std::vector<float> target(static_cast<size_t>(part.count));
      bytes.CopyTo(part.offset, absl::MakeSpan(target));
      ASSERT_TRUE(SameFloats(target, PartOf(values, part))) << "seed " << seed;
      std::vector<float> sum(target.size(), 0.3f);
      bytes.AddTo(part.offset, absl::MakeSpan(sum));
      for (size_t i = 0; i < sum.size(); ++i) ASSERT_EQ(sum[i], 0.3f + target[i]);
    }
  }
}

TEST(GradientBytesTest, FindsTheFirstValueThatIsNotFinite) {
  std::mt19937 random(7);
  for (const DType dtype : kDTypes) {
    for (const float bad : {std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(), std::nanf("")}) {
      for (const int64_t at : {0, 1, 255, 256, 700, 999}) {
        std::vector<float> values = GradientOf(1000, 3, 1, 0, dtype);
        values[at] = bad;
        if (at < 990) values[at + 7] = bad;
        const Payload payload = Encode(values, dtype);
        const Scattered scattered(payload.bytes, random);
        const GradientBytes bytes = GradientBytes::Create(dtype, scattered.pieces).value();
        EXPECT_EQ(bytes.FirstNonfinite(0, 1000), at) << Name(dtype);
        EXPECT_EQ(bytes.FirstNonfinite(at, 1000 - at), at);
        EXPECT_EQ(bytes.FirstNonfinite(0, at), std::nullopt);
      }
    }
  }
}

TEST(GradientBytesTest, TakesTheLargestAndTheSmallestForFinite) {
  for (const DType dtype : kDTypes) {
    const float largest = dtype == DType::kF32   ? std::numeric_limits<float>::max()
                          : dtype == DType::kF16 ? 65504.0f
                                                 : BF16ToF32(0x7f7f);
    const float least = dtype == DType::kF16 ? 0x1p-24f : std::numeric_limits<float>::min();
    const std::vector<float> values = {largest, -largest, least, -least, 0.0f, -0.0f};
    const Payload payload = Encode(values, dtype);
    EXPECT_EQ(payload.view().FirstNonfinite(0, 6), std::nullopt) << Name(dtype);
  }
}

TEST(GradientBytesTest, GivesFloatsWhereTheyLieOnlyIfTheyCanBeReadThere) {
  const std::vector<float> values = {1, 2, 3};
  const auto floats = GradientBytes::OfFloats(values).AsFloats();
  ASSERT_TRUE(floats.has_value());
  EXPECT_EQ(floats->data(), values.data());
  std::vector<std::byte> memory(13);
  const absl::Span<const std::byte> odd(memory.data() + 1, 12);
  EXPECT_FALSE(GradientBytes::Create(DType::kF32, {&odd, 1}).value().AsFloats().has_value());
  EXPECT_FALSE(Encode(values, DType::kF16).view().AsFloats().has_value());
}

TEST(GradientBytesTest, RefusesOtherTypesAndPartsOfElements) {
  const std::vector<std::byte> memory(10);
  const absl::Span<const std::byte> piece(memory);
  EXPECT_EQ(GradientBytes::Create(DType::kF64, {&piece, 1}).status().message(),
            "dtype: expected f32, f16 or bf16, got f64");
  EXPECT_EQ(GradientBytes::Create(DType::kF32, {&piece, 1}).status().message(),
            "values: expected whole elements of 4 bytes (f32), got 10 bytes");
  EXPECT_EQ(GradientBytes::Create(DType::kBF16, {&piece, 1}).value().count(), 5);
}

}  // namespace
}  // namespace muster
