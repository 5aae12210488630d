// Hybrid sharding takes the steps of the other strategies up to the order of sums, the same bits
// each time, and keeps one shard of a group's on each worker.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/worker/runtime/strategies_fixture.h"

namespace muster {
namespace {

class HybridTest : public StrategiesTest {
 protected:
  static Strategy InGroups(int32_t stage, int32_t size) {
    return {.stage = stage, .replicas = 0, .group_size = size};
  }

  static void ExpectNear(const Result& result, const Result& expected, double tolerance) {
    ASSERT_EQ(result.losses.size(), expected.losses.size());
    for (size_t i = 0; i < result.losses.size(); ++i) {
      EXPECT_NEAR(result.losses[i], expected.losses[i], tolerance) << "step " << i + 1;
    }
    for (size_t i = 0; i < result.arrays[0].size(); ++i) {
      ASSERT_NEAR(result.arrays[0][i], expected.arrays[0][i], tolerance) << "element " << i;
    }
  }
};

TEST_F(HybridTest, OnlyTheOrderOfSumsDiffersFromOtherStrategies) {
  spec_.training.evaluate_every = 5;
  spec_.training.clip_norm = 0.5;
  for (const int workers : {2, 4, 6}) {
    // Several micro-batches for each worker, also unequally many; fewer than workers.
    for (const int micro_batch : {4, 16, 48}) {
      spec_.training.micro_batch = micro_batch;
      const Result expected = TrainIn(workers, {});
      Result of_stage[kMaxStage + 1];
      for (int32_t stage = 1; stage <= kMaxStage; ++stage) {
        SCOPED_TRACE(
            absl::StrCat(workers, " workers, micro-batches of ", micro_batch, ", stage ", stage));
        of_stage[stage] = TrainIn(workers, InGroups(stage, workers / 2));
        ExpectNear(of_stage[stage], expected, 2e-5);
        ExpectSame(of_stage[stage], of_stage[1]);
      }
      ExpectSame(TrainIn(workers, InGroups(2, workers / 2)), of_stage[1]);
    }
  }
}

TEST_F(HybridTest, OneGroupMakesTheBitsOfThePlainStage) {
  for (int32_t stage = 1; stage <= kMaxStage; ++stage) {
    const Result expected = TrainIn(4, {.stage = stage, .replicas = 0});
    ExpectSame(TrainIn(4, InGroups(stage, 4)), expected);
    // Three of four are no groups.
    ExpectSame(TrainIn(4, InGroups(stage, 3)), expected);
    ExpectSame(TrainIn(4, {.stage = stage, .replicas = 0, .host_groups = true}), expected);
  }
}

// Each worker holds everything, and all sums cross.
TEST_F(HybridTest, GroupsMayHaveOneMember) {
  const Result expected = TrainIn(3, {});
  for (int32_t stage = 1; stage <= kMaxStage; ++stage) {
    ExpectNear(TrainIn(3, InGroups(stage, 1)), expected, 2e-5);
  }
}

TEST_F(HybridTest, ManyBlocksGoThroughFewBuffers) {
  spec_.model = MlpSpec{.hidden = std::vector<int32_t>(9, 24)};
  spec_.training.micro_batch = 48 / 4;
  const Result expected = TrainIn(4, {});
  const Result first = TrainIn(4, InGroups(1, 2));
  ExpectNear(first, expected, 2e-5);
  for (const int32_t stage : {2, 3}) ExpectSame(TrainIn(4, InGroups(stage, 2)), first);
}

TEST_F(HybridTest, FrozenTensorsStayAsTheyAre) {
  spec_.training.optimizer.groups = {{.tensors = {"fc1.*"}, .frozen = true}};
  const Result expected = TrainIn(4, {});
  for (const int32_t stage : {1, 3}) ExpectNear(TrainIn(4, InGroups(stage, 2)), expected, 2e-5);
}

// Each tensor's norm counts once, though several groups hold it.
TEST_F(HybridTest, ALayerWiseRuleHasTheNormsOfWholeTensors) {
  spec_.training.optimizer.rule = LambSpec{};
  for (const double clip_norm : {0.0, 0.5}) {
    spec_.training.clip_norm = clip_norm;
    const Result expected = TrainIn(4, {});
    for (int32_t stage = 1; stage <= kMaxStage; ++stage) {
      ExpectNear(TrainIn(4, InGroups(stage, 2)), expected, 5e-5);
    }
  }
}

TEST_F(HybridTest, SharedWeightsAreGatheredWithinTheGroup) {
  spec_.model = MlpSpec{.hidden = {24, 12, 24}, .tie_weights = true};
  const Result expected = TrainIn(4, {});
  for (int32_t stage = 1; stage <= kMaxStage; ++stage) {
    ExpectNear(TrainIn(4, InGroups(stage, 2)), expected, 2e-5);
  }
}

// Sums of 16 bits are rounded once in the group and once across.
TEST_F(HybridTest, RoundedTypesStayClose) {
  spec_.training.precision = DType::kBF16;
  spec_.communication.gradients = DType::kBF16;
  const Result expected = TrainIn(4, {});
  const Result first = TrainIn(4, InGroups(1, 2));
  ExpectNear(first, expected, 0.05);
  EXPECT_NE(first.hash, expected.hash);
  for (const int32_t stage : {2, 3}) ExpectSame(TrainIn(4, InGroups(stage, 2)), first);
}

}  // namespace
}  // namespace muster
