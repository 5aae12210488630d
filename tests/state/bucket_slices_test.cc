#include "state/bucket_slices.h"

#include <algorithm>
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/state/random_layout.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kUnit = Layout::kAlignment;

Layout LayoutOf(std::vector<int64_t> tensor_counts, int64_t bucket_elements) {
  std::vector<TensorSpec> tensors;
  for (const int64_t count : tensor_counts) {
    TensorSpec spec;
    spec.name = absl::StrCat("tensor", tensors.size());
    spec.shape = {count};
    spec.block = static_cast<int>(tensors.size());
    tensors.push_back(std::move(spec));
  }
  return Layout::Create(std::move(tensors), bucket_elements).value();
}

std::vector<int64_t> Counts(const BucketSlices& slices, int bucket) {
  const absl::Span<const int64_t> counts = slices.CountsOf(bucket);
  return {counts.begin(), counts.end()};
}

// The oracle: the owner of every element, written down one by one. Fails if slices leave holes or
// overlap.
std::vector<Rank> OwnersByElement(const Layout& layout, const BucketSlices& slices) {
  std::vector<Rank> owners(layout.padded_count(), -1);
  for (int bucket = 0; bucket < slices.bucket_count(); ++bucket) {
    int64_t next = layout.buckets()[bucket].offset;
    for (Rank owner = 0; owner < slices.owners(); ++owner) {
      const Range slice = slices.SliceOf(bucket, owner);
      EXPECT_EQ(slice.offset, next);
      EXPECT_GE(slice.count, 0);
      for (int64_t i = slice.offset; i < slice.end(); ++i) owners[i] = owner;
      next = slice.end();
    }
    EXPECT_EQ(next, layout.buckets()[bucket].offset + layout.buckets()[bucket].count);
  }
  EXPECT_EQ(std::count(owners.begin(), owners.end(), -1), 0) << "elements without an owner";
  return owners;
}

TEST(BucketSlicesTest, EvenSharesDifferByAtMostOneElementOverTheLayout) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const Layout layout = RandomLayout(seed);
    for (int owners = 1; owners <= 33; ++owners) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, " owners ", owners));
      const BucketSlices slices = BucketSlices::Even(layout, owners).value();
      const std::vector<Rank> oracle = OwnersByElement(layout, slices);
      std::vector<int64_t> totals(owners);
      for (const Rank owner : oracle) ++totals[owner];
      const auto [least, most] = std::minmax_element(totals.begin(), totals.end());
      ASSERT_LE(*most - *least, 1);
      for (Rank owner = 0; owner < owners; ++owner) {
        ASSERT_EQ(slices.OwnedBy(owner), totals[owner]);
      }
    }
  }
}

TEST(BucketSlicesTest, NoOwnerHasAnElementBeyondItsWeightedShare) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const Layout layout = RandomLayout(seed);
    std::mt19937 random(seed);
    std::vector<int64_t> weights(Draw(random, 1, 33));
    for (int64_t& weight : weights) weight = Draw(random, 0, 3) == 0 ? 0 : Draw(random, 0, 1000);
    weights[0] += 1;
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const BucketSlices slices = BucketSlices::Weighted(layout, weights).value();
    OwnersByElement(layout, slices);
    const auto total = static_cast<double>(std::accumulate(weights.begin(), weights.end(), 0));
    for (size_t i = 0; i < weights.size(); ++i) {
      const double share =
          static_cast<double>(layout.padded_count()) * static_cast<double>(weights[i]) / total;
      ASSERT_LT(static_cast<double>(slices.OwnedBy(static_cast<Rank>(i))), share + 1)
          << "owner " << i;
      if (weights[i] == 0) {
        ASSERT_EQ(slices.OwnedBy(static_cast<Rank>(i)), 0);
      }
    }
  }
}

TEST(BucketSlicesTest, OnlyTheLargestBucketIsCutWithinUnits) {
  int cut_within = 0;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    const Layout layout = RandomLayout(seed);
    int64_t largest = 0;
    for (const Bucket& bucket : layout.buckets()) largest = std::max(largest, bucket.count);
    for (int owners = 1; owners <= 33; ++owners) {
      // Enough for each owner to be given up to a unit, and one element.
      if (largest < (kUnit + 1) * owners) break;
      SCOPED_TRACE(absl::StrCat("seed ", seed, " owners ", owners));
      const BucketSlices slices = BucketSlices::Even(layout, owners).value();
      int buckets_cut_within = 0;
      for (int bucket = 0; bucket < slices.bucket_count(); ++bucket) {
        const int64_t count = layout.buckets()[bucket].count;
        bool within = false;
        for (const int64_t slice : slices.CountsOf(bucket)) {
          within = within || slice % kUnit != 0;
          ASSERT_LE(slice, count / owners + kUnit + 1);
        }
        if (within) {
          ASSERT_EQ(count, largest);
          ++buckets_cut_within;
        }
      }
      ASSERT_LE(buckets_cut_within, 1);
      cut_within += buckets_cut_within;
    }
  }
  EXPECT_GT(cut_within, 0);
}

TEST(BucketSlicesTest, LeftoversGoAround) {
  // Buckets of 5, 5, 5 and 64 units among 4: one unit is left over in each of the first three.
  const Layout layout = LayoutOf({5 * kUnit, 5 * kUnit, 5 * kUnit, 64 * kUnit}, 64 * kUnit);
  const BucketSlices slices = BucketSlices::Even(layout, 4).value();
  EXPECT_THAT(Counts(slices, 0), ElementsAre(2 * kUnit, kUnit, kUnit, kUnit));
  EXPECT_THAT(Counts(slices, 1), ElementsAre(kUnit, 2 * kUnit, kUnit, kUnit));
  EXPECT_THAT(Counts(slices, 2), ElementsAre(kUnit, kUnit, 2 * kUnit, kUnit));
  // 79 units are 1264 elements each, of which the last owner has fewest so far.
  EXPECT_THAT(Counts(slices, 3), ElementsAre(1008, 1008, 1008, 1072));
}

TEST(BucketSlicesTest, SmallLayoutsAreCutAnywhere) {
  const Layout layout = LayoutOf({1, 1}, kUnit);
  const BucketSlices slices = BucketSlices::Even(layout, 3).value();
  EXPECT_THAT(Counts(slices, 0), ElementsAre(22, 21, 21));
  EXPECT_THAT(Counts(slices, 1), ElementsAre(21, 22, 21));
  // More owners than elements: some own nothing in a bucket, and others in the next.
  const BucketSlices many = BucketSlices::Even(layout, 100).value();
  EXPECT_EQ(many.SliceOf(0, 99).count, 0);
  EXPECT_EQ(many.SliceOf(1, 99).count, 1);
}

TEST(BucketSlicesTest, PiecesNameTheOwnerOfEveryElementOfARange) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const Layout layout = RandomLayout(seed);
    std::mt19937 random(seed);
    const BucketSlices slices = BucketSlices::Even(layout, Draw(random, 1, 9)).value();
    const std::vector<Rank> oracle = OwnersByElement(layout, slices);
    for (int i = 0; i < 20; ++i) {
      const int64_t offset = Draw(random, 0, layout.padded_count());
      const Range range = {offset, Draw(random, 0, layout.padded_count() - offset)};
      int64_t next = range.offset;
      Rank previous = -1;
      for (const OwnedRange& piece : slices.PiecesOf(range)) {
        ASSERT_EQ(piece.range.offset, next);
        ASSERT_GT(piece.range.count, 0);
        ASSERT_NE(piece.owner, previous) << "neighbours of one owner are one piece";
        previous = piece.owner;
        for (; next < piece.range.end(); ++next) ASSERT_EQ(oracle[next], piece.owner);
      }
      ASSERT_EQ(next, range.end());
    }
  }
}

TEST(BucketSlicesTest, LargeLayoutsDoNotOverflow) {
  // 2^47 elements in buckets of 2^40.
  const Layout layout = LayoutOf({int64_t{1} << 47}, int64_t{1} << 40);
  const BucketSlices slices =
      BucketSlices::Weighted(layout, {BucketSlices::kMaxWeight - 1, 1}).value();
  EXPECT_EQ(slices.OwnedBy(1), (int64_t{1} << 47) / BucketSlices::kMaxWeight);
  EXPECT_EQ(slices.OwnedBy(0) + slices.OwnedBy(1), int64_t{1} << 47);
}

TEST(BucketSlicesTest, RefusesWhatCannotBeShared) {
  const Layout layout = LayoutOf({100}, 128);
  EXPECT_THAT(std::string(BucketSlices::Even(layout, 0).status().message()), HasSubstr("got 0"));
  EXPECT_THAT(std::string(BucketSlices::Even(layout, 4097).status().message()),
              HasSubstr("got 4097"));
  const auto refusal = [&layout](std::vector<int64_t> weights) {
    const absl::Status status = BucketSlices::Weighted(layout, weights).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refusal({}), HasSubstr("got 0"));
  EXPECT_THAT(refusal({3, -1}), HasSubstr("weight 1 is -1"));
  EXPECT_THAT(refusal({BucketSlices::kMaxWeight, 1}), HasSubstr("weight 1 is 1"));
  EXPECT_THAT(refusal({0, 0}), HasSubstr("all weights are 0"));
}

}  // namespace
}  // namespace muster
