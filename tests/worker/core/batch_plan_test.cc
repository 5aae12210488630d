#include "worker/core/batch_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

std::vector<int64_t> Order(uint64_t seed, int64_t data_epoch, int64_t size) {
  const SamplePermutation permutation(seed, data_epoch, size);
  std::vector<int64_t> order;
  for (int64_t position = 0; position < size; ++position) order.push_back(permutation[position]);
  return order;
}

void ExpectPermutation(std::vector<int64_t> order, int64_t size) {
  std::sort(order.begin(), order.end());
  ASSERT_EQ(static_cast<int64_t>(order.size()), size);
  for (int64_t i = 0; i < size; ++i) ASSERT_EQ(order[static_cast<size_t>(i)], i) << "of " << size;
}

TEST(SamplePermutationTest, IsABijectionForEverySmallSize) {
  for (int64_t size = 1; size <= 3000; ++size) ExpectPermutation(Order(7, size % 5, size), size);
}

TEST(SamplePermutationTest, IsABijectionAroundSquares) {
  for (const int64_t size : {54 * 54 - 1, 54 * 54, 54 * 54 + 1, 59'999, 60'000, 60'001}) {
    ExpectPermutation(Order(3, 0, size), size);
  }
}

TEST(SamplePermutationTest, ServesSizesFarBeyondATable) {
  for (const int64_t size : {int64_t{1} << 31, (int64_t{1} << 31) + 11, int64_t{1'000'000'000'000},
                             SamplePermutation::kMaxSize}) {
    const SamplePermutation permutation(1, 2, size);
    std::set<int64_t> seen;
    for (int64_t i = 0; i < 2000; ++i) {
      // Both ends and points in between.
      const int64_t position = i % 2 == 0 ? i : size - 1 - i * (size / 4000);
      const int64_t sample = permutation[position];
      ASSERT_GE(sample, 0);
      ASSERT_LT(sample, size);
      EXPECT_TRUE(seen.insert(sample).second) << "position " << position << " of " << size;
    }
  }
}

TEST(SamplePermutationTest, DiffersBySeedAndDataEpoch) {
  const std::vector<int64_t> reference = Order(1, 0, 1000);
  EXPECT_EQ(reference, Order(1, 0, 1000));
  const auto fixed_points = [&](const std::vector<int64_t>& other) {
    int count = 0;
    for (size_t i = 0; i < other.size(); ++i) count += other[i] == reference[i];
    return count;
  };
  // Two independent permutations agree at one position on average.
  EXPECT_LE(fixed_points(Order(2, 0, 1000)), 8);
  EXPECT_LE(fixed_points(Order(1, 1, 1000)), 8);
}

// Pearson's statistic of `counts` against equal expectations.
double ChiSquare(const std::vector<int>& counts, double expected) {
  double sum = 0;
  for (const int count : counts) sum += (count - expected) * (count - expected) / expected;
  return sum;
}

TEST(SamplePermutationTest, EveryOrderOfFewSamplesIsEquallyLikely) {
  constexpr int kDraws = 24'000;
  std::vector<int> counts(24, 0);
  for (int draw = 0; draw < kDraws; ++draw) {
    std::vector<int64_t> order = Order(draw, 0, 4);
    int index = 0;  // of the order among the 24, in the factorial number system
    for (int i = 0; i < 4; ++i) {
      int smaller_later = 0;
      for (int j = i + 1; j < 4; ++j) smaller_later += order[j] < order[i];
      index = index * (4 - i) + smaller_later;
    }
    ++counts[static_cast<size_t>(index)];
  }
  // 23 degrees of freedom: 49.7 is exceeded with probability 0.001.
  EXPECT_LT(ChiSquare(counts, kDraws / 24.0), 49.7);
}

TEST(SamplePermutationTest, EverySampleIsEquallyLikelyAtEveryPosition) {
  constexpr int kSize = 50, kDraws = 20'000;
  for (const int64_t position : {0, 1, 25, 49}) {
    std::vector<int> counts(kSize, 0);
    for (int draw = 0; draw < kDraws; ++draw) {
      ++counts[static_cast<size_t>(SamplePermutation(5, draw, kSize)[position])];
    }
    // 49 degrees of freedom: 85.4 is exceeded with probability 0.001.
    EXPECT_LT(ChiSquare(counts, kDraws / double{kSize}), 85.4) << "position " << position;
  }
}

TEST(SamplePermutationTest, NeighboursInTheOrderAreNotNeighboursInTheData) {
  const std::vector<int64_t> order = Order(9, 0, 60'000);
  // The correlation of successive samples of a random order has standard deviation 1/sqrt(n).
  const double mean = (60'000 - 1) / 2.0;
  double product = 0, square = 0;
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    product += (order[i] - mean) * (order[i + 1] - mean);
    square += (order[i] - mean) * (order[i] - mean);
  }
  EXPECT_LT(std::abs(product / square), 4 / std::sqrt(60'000.0));
}

// All samples of steps [first, last].
std::vector<int64_t> Stream(const BatchPlan& plan, Step first, Step last) {
  std::vector<int64_t> stream;
  for (Step step = first; step <= last; ++step) {
    for (int32_t m = 0; m < plan.micro_batches_per_step; ++m) {
      const std::vector<int64_t> samples = plan.SamplesOf(step, m);
      stream.insert(stream.end(), samples.begin(), samples.end());
    }
  }
  return stream;
}

TEST(BatchPlanTest, EachSampleComesOncePerDataEpoch) {
  // Sizes that divide the data set, that straddle its end, and that exceed it several times.
  for (const auto& [samples, size, per_step] :
       {std::array{96, 4, 6}, std::array{100, 7, 3}, std::array{10, 8, 4}, std::array{1, 3, 2}}) {
    const BatchPlan plan{.seed = 11,
                         .sample_count = samples,
                         .micro_batch_size = size,
                         .micro_batches_per_step = per_step};
    ASSERT_TRUE(plan.Validate().ok());
    const int64_t per = plan.samples_per_step();
    const std::vector<int64_t> stream = Stream(plan, 1, 5 * samples / per + 5);
    for (size_t begin = 0; begin + samples <= stream.size(); begin += samples) {
      ExpectPermutation({stream.begin() + begin, stream.begin() + begin + samples}, samples);
    }
  }
}

TEST(BatchPlanTest, DataEpochsHaveDifferentOrders) {
  const BatchPlan plan{
      .seed = 1, .sample_count = 100, .micro_batch_size = 100, .micro_batches_per_step = 1};
  EXPECT_NE(plan.SamplesOf(1, 0), plan.SamplesOf(2, 0));
}

TEST(BatchPlanTest, TheStreamDoesNotDependOnHowAStepIsCut) {
  const BatchPlan coarse{
      .seed = 5, .sample_count = 61, .micro_batch_size = 12, .micro_batches_per_step = 2};
  const BatchPlan fine{
      .seed = 5, .sample_count = 61, .micro_batch_size = 3, .micro_batches_per_step = 8};
  EXPECT_EQ(Stream(coarse, 1, 20), Stream(fine, 1, 20));
}

TEST(BatchPlanTest, LateStepsAreReachedDirectly) {
  const BatchPlan plan{
      .seed = 5, .sample_count = 60'000, .micro_batch_size = 64, .micro_batches_per_step = 8};
  EXPECT_EQ(plan.SamplesOf(BatchPlan::kMaxStep, 7).size(), 64u);
  EXPECT_DOUBLE_EQ(plan.DataEpochsAfter(1875), 16.0);
}

TEST(BatchPlanTest, EveryWorldSizeCoversEveryMicroBatchOnceAndEvenly) {
  for (const int32_t per_step : {1, 2, 3, 8, 13, 64}) {
    const BatchPlan plan{
        .seed = 1, .sample_count = 10, .micro_batch_size = 1, .micro_batches_per_step = per_step};
    for (int32_t size = 1; size <= 80; ++size) {
      int32_t next = 0;
      int32_t least = per_step, most = 0;
      for (Rank rank = 0; rank < size; ++rank) {
        const MicroBatchRange range = plan.MicroBatchesOf(rank, size);
        ASSERT_EQ(range.first, next) << "rank " << rank << " of " << size;
        next = range.last;
        least = std::min(least, range.count());
        most = std::max(most, range.count());
      }
      ASSERT_EQ(next, per_step);
      ASSERT_LE(most - least, 1) << per_step << " micro-batches on " << size << " ranks";
    }
  }
}

TEST(BatchPlanTest, AFleetThatChangesSizeSeesTheSameSamples) {
  const BatchPlan plan{
      .seed = 3, .sample_count = 50, .micro_batch_size = 4, .micro_batches_per_step = 6};
  const std::vector<int64_t> planned = Stream(plan, 1, 12);
  const RandomStream sizes(99, "world sizes");
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<int64_t> seen;
    for (Step step = 1; step <= 12; ++step) {
      const int32_t size = 1 + static_cast<int32_t>(sizes.Below(trial * 100 + step, 9));
      for (Rank rank = 0; rank < size; ++rank) {
        const MicroBatchRange range = plan.MicroBatchesOf(rank, size);
        for (int32_t m = range.first; m < range.last; ++m) {
          const std::vector<int64_t> samples = plan.SamplesOf(step, m);
          seen.insert(seen.end(), samples.begin(), samples.end());
        }
      }
    }
    ASSERT_EQ(seen, planned);
  }
}

TEST(BatchPlanTest, LargePlansDoNotOverflow) {
  const BatchPlan plan{.seed = 3,
                       .sample_count = SamplePermutation::kMaxSize,
                       .micro_batch_size = 2,
                       .micro_batches_per_step = 1 << 30};
  ASSERT_TRUE(plan.Validate().ok());
  for (const int64_t sample : plan.SamplesOf(BatchPlan::kMaxStep, (1 << 30) - 1)) {
    EXPECT_GE(sample, 0);
    EXPECT_LT(sample, plan.sample_count);
  }
  EXPECT_EQ(plan.MicroBatchesOf(0, 1), (MicroBatchRange{0, 1 << 30}));
  EXPECT_EQ(plan.MicroBatchesOf(999, 1000).last, 1 << 30);
}

TEST(BatchPlanTest, ValidateNamesTheFieldThatIsWrong) {
  const BatchPlan good{
      .seed = 0, .sample_count = 1, .micro_batch_size = 1, .micro_batches_per_step = 1};
  EXPECT_TRUE(good.Validate().ok());
  const auto message = [&](auto change) {
    BatchPlan plan = good;
    change(plan);
    const absl::Status status = plan.Validate();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message([](BatchPlan& p) { p.sample_count = 0; }), HasSubstr("sample_count"));
  EXPECT_THAT(message([](BatchPlan& p) { p.sample_count = SamplePermutation::kMaxSize + 1; }),
              HasSubstr("sample_count"));
  EXPECT_THAT(message([](BatchPlan& p) { p.micro_batch_size = 0; }), HasSubstr("micro_batch_size"));
  EXPECT_THAT(message([](BatchPlan& p) { p.micro_batches_per_step = -1; }),
              HasSubstr("micro_batches_per_step"));
  EXPECT_THAT(message([](BatchPlan& p) {
                p.micro_batch_size = 1 << 20;
                p.micro_batches_per_step = 1 << 20;
              }),
              HasSubstr("samples a step"));
}

}  // namespace
}  // namespace muster
