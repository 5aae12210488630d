#include "server/parameter_server/core/canonical_sum.h"

#include "tests/server/parameter_server/core/table_fixture.h"

namespace muster {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

// Contributions of `gradients` in random cuts and order, many of them twice, some overlapping.
struct Chunk {
  int32_t micro_batch = 0;
  Range range;
};

std::vector<Chunk> RandomDelivery(Range range, int32_t micro_batches, std::mt19937& random) {
  std::vector<Chunk> chunks;
  for (int32_t m = 0; m < micro_batches; ++m) {
    const int64_t most = Draw(random, 0, 1) == 0 ? range.count : Draw(random, 1, 900);
    for (const Range part : RandomChunks(range, most, random)) {
      chunks.push_back({m, part});
      if (Draw(random, 0, 4) > 0) continue;
      const int64_t begin = Draw(random, range.offset, part.offset);
      chunks.push_back({m, {begin, Draw(random, 1, range.end() - begin)}});
    }
  }
  std::shuffle(chunks.begin(), chunks.end(), random);
  return chunks;
}

TEST(CanonicalSumTest, HasTheBitsOfTheDefinitionWhateverTheOrderAndCut) {
  for (uint32_t seed = 0; seed < 120; ++seed) {
    std::mt19937 random(seed);
    const Layout layout = RandomLayout(seed);
    constexpr int32_t kContributors[] = {1, 2, 3, 5, 8};
    const int32_t n = kContributors[Draw(random, 0, 4)];
    const auto m = static_cast<int32_t>(Draw(random, 1, 2 * n + 1));
    SCOPED_TRACE(absl::StrCat("seed ", seed, ", ", n, " contributors, ", m, " micro-batches"));
    Range range = {0, layout.padded_count()};
    if (seed % 2 == 1) {
      range.offset = Draw(random, 0, layout.padded_count() - 1);
      range.count = Draw(random, 1, layout.padded_count() - range.offset);
    }
    SimpleMemoryAccount account(kPlenty);
    BufferPool pool(account, Draw(random, 0, 1) * 100'000);
    std::vector<float> sum(static_cast<size_t>(range.count), 77.0f);
    CanonicalSum canonical = CanonicalSum::Create(layout, range, Draw(random, 100, 4000),
                                                  Contributions(n, m), pool, absl::MakeSpan(sum))
                                 .value();
    for (Step step = 1; step <= 2; ++step) {
      std::vector<std::vector<float>> gradients;
      std::vector<Payload> payloads;
      for (int32_t i = 0; i < m; ++i) {
        const DType dtype = kDTypes[Draw(random, 0, 2)];
        gradients.push_back(GradientOf(layout.padded_count(), seed, step, i, dtype));
        payloads.push_back(Encode(gradients.back(), dtype));
      }
      // Chunks of all of the space: the offset is where it begins.
      for (const Chunk& chunk : RandomDelivery(range, m, random)) {
        const auto units = canonical.UnitsIn(chunk.range);
        for (int u = units.first; u < units.last; ++u) {
          const Range whole = canonical.RangeOfUnit(u);
          const int64_t begin = std::max(whole.offset, chunk.range.offset);
          const Range part = {begin, std::min(whole.end(), chunk.range.end()) - begin};
          const bool received = canonical.Received(u, chunk.micro_batch, part);
          const bool holds = canonical.MustHold(u, chunk.micro_batch, part);
          const int64_t held = canonical.held_bytes();
          canonical.Add(u, chunk.micro_batch, part, payloads[chunk.micro_batch].view(), 0);
          ASSERT_TRUE(canonical.Received(u, chunk.micro_batch, part));
          if (received) {
            ASSERT_EQ(canonical.held_bytes(), held);
          }
          if (!received && !holds) {
            // One array, at most, and only for who is first in order.
            ASSERT_LE(canonical.held_bytes(), held + BufferPool::BytesFor(whole.count));
          }
          ASSERT_EQ(pool.used_bytes(), canonical.held_bytes()) << "accounted exactly";
        }
      }
      const std::vector<float> expected = SumByDefinition(layout, n, gradients);
      ASSERT_EQ(canonical.held_bytes(), 0);
      for (int u = 0; u < canonical.unit_count(); ++u) {
        ASSERT_TRUE(canonical.complete(u));
        const Range unit = canonical.RangeOfUnit(u);
        const Range local = {unit.offset - range.offset, unit.count};
        ASSERT_TRUE(SameFloats(PartOf(sum, local), PartOf(expected, unit)))
            << "unit " << u << " of step " << step << ", "
            << Difference(PartOf(sum, local), PartOf(expected, unit));
        canonical.Reset(u);
        ASSERT_FALSE(canonical.complete(u));
      }
    }
  }
}

TEST(CanonicalSumTest, HoldsNothingOfContributionsThatComeInOrder) {
  const Layout layout = RandomLayout(3);
  const Range range = {0, layout.padded_count()};
  SimpleMemoryAccount account(kPlenty);
  BufferPool pool(account, 0);
  std::vector<float> sum(static_cast<size_t>(range.count));
  CanonicalSum canonical =
      CanonicalSum::Create(layout, range, 1 << 18, Contributions(3, 3), pool, absl::MakeSpan(sum))
          .value();
  const BucketSlices slices = BucketSlices::Even(layout, 3).value();
  const std::vector<float> gradient = GradientOf(layout.padded_count(), 1, 1, 0, DType::kF32);
  for (int u = 0; u < canonical.unit_count(); ++u) {
    const Range unit = canonical.RangeOfUnit(u);
    const Rank owner = slices.PiecesOf(unit)[0].owner;
    for (int k = 1; k <= 3; ++k) {
      const int32_t next = (owner + k) % 3;
      for (int32_t other = 0; other < 3; ++other) {
        if (canonical.Received(u, other, unit)) continue;
        ASSERT_EQ(canonical.MustHold(u, other, unit), other != next);
      }
      canonical.Add(u, next, unit, GradientBytes::OfFloats(gradient), 0);
      ASSERT_EQ(canonical.held_bytes(), 0);
    }
    ASSERT_TRUE(canonical.complete(u));
  }
}

TEST(CanonicalSumTest, SumsOverManyContributors) {
  const Layout layout = RandomLayout(11);
  const Range range = {0, layout.padded_count()};
  constexpr int32_t kCount = 300;
  SimpleMemoryAccount account(kPlenty);
  BufferPool pool(account, 1 << 20);
  std::vector<float> sum(static_cast<size_t>(range.count));
  CanonicalSum canonical =
      CanonicalSum::Create(layout, range, 1 << 18, Contributions(kCount, kCount), pool,
                           absl::MakeSpan(sum))
          .value();
  std::vector<std::vector<float>> gradients;
  std::vector<int32_t> order;
  for (int32_t i = 0; i < kCount; ++i) {
    gradients.push_back(GradientOf(layout.padded_count(), 5, 1, i, DType::kF32));
    order.push_back(i);
  }
  std::mt19937 random(1);
  std::shuffle(order.begin(), order.end(), random);
  for (const int32_t i : order) {
    for (int u = 0; u < canonical.unit_count(); ++u) {
      canonical.Add(u, i, canonical.RangeOfUnit(u), GradientBytes::OfFloats(gradients[i]), 0);
    }
  }
  const std::vector<float> expected = SumByDefinition(layout, kCount, gradients);
  for (int u = 0; u < canonical.unit_count(); ++u) {
    const Range unit = canonical.RangeOfUnit(u);
    ASSERT_TRUE(SameFloats(PartOf(sum, unit), PartOf(expected, unit)));
  }
}

TEST(CanonicalSumTest, RefusesMoreSlicesThanCanBeKept) {
  const Layout layout =
      Layout::Create({{.name = "w", .shape = {1 << 20}}}, Layout::kAlignment).value();
  SimpleMemoryAccount account(kPlenty);
  BufferPool pool(account, 0);
  std::vector<float> sum(1 << 20);
  EXPECT_EQ(CanonicalSum::Create(layout, {0, 1 << 20}, 1 << 18, Contributions(4096, 4096), pool,
                                 absl::MakeSpan(sum))
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace muster
