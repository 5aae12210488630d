#include "base/control/state_memory.h"

#include "base/control/placement.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

constexpr int64_t kElements = 120'000'000;

// AdamW in mixed precision, blocks too small to matter.
constexpr StateSize kMixed{.elements = kElements,
                           .largest_block = 100,
                           .bucket = 1 << 18,
                           .slots = 2,
                           .parameter_bytes = 2,
                           .gradient_bytes = 2};

Strategy Stage(int32_t stage, int32_t replicas = 0) {
  return {.stage = stage, .replicas = replicas};
}

double BytesPerParameter(const Strategy& strategy, const CrewSize& crew,
                         MemberRole role = MemberRole::kWorker) {
  return static_cast<double>(StateBytes(kMixed, strategy, crew, role)) / kElements;
}

// Rajbhandari et al., "ZeRO", SC 2020, figure 1 and section 5, with K = 12.
TEST(StateMemoryTest, IsThatOfTheZeroPaper) {
  for (const int n : {1, 2, 4, 8}) {
    const CrewSize crew{.workers = n};
    EXPECT_NEAR(BytesPerParameter(Stage(0), crew), 16, 1e-3);
    EXPECT_NEAR(BytesPerParameter(Stage(1), crew), 4 + 12.0 / n, 1e-3);
    EXPECT_NEAR(BytesPerParameter(Stage(2), crew), 2 + 14.0 / n, 1e-3);
    EXPECT_NEAR(BytesPerParameter(Stage(3), crew), 16.0 / n, 1e-3);
  }
}

TEST(StateMemoryTest, ReplicasAreHeldBesideAsFarAsThereAreOwners) {
  EXPECT_EQ(HeldElements(1200, Stage(1, 1), {.workers = 4}, MemberRole::kWorker), 600);
  EXPECT_EQ(HeldElements(1200, Stage(1, 8), {.workers = 4}, MemberRole::kWorker), 1200);
  EXPECT_EQ(HeldElements(1200, Stage(1, 1), {.workers = 1}, MemberRole::kWorker), 1200);
  EXPECT_EQ(HeldElements(1201, Stage(1, 0), {.workers = 4}, MemberRole::kWorker), 301);
}

// As if there were as many workers as a group has, however many replicas one group would hold.
TEST(StateMemoryTest, OfSeveralGroupsEachHoldsEverything) {
  for (const int size : {1, 2, 4}) {
    for (int32_t stage = 1; stage <= kMaxStage; ++stage) {
      Strategy grouped = Stage(stage, 1);
      grouped.group_size = size;
      EXPECT_EQ(
          StateBytes(kMixed, grouped, {.workers = 8, .groups = 8 / size}, MemberRole::kWorker),
          StateBytes(kMixed, Stage(stage), {.workers = size}, MemberRole::kWorker));
    }
  }
}

TEST(StateMemoryTest, DedicatedServersTakeWhatWorkersNeedNotKeep) {
  const Strategy served{.sync = SyncPath::kParameterServer, .replicas = 0, .servers = 2};
  const CrewSize crew{.workers = 4, .servers = 2};
  EXPECT_EQ(HeldElements(1200, served, crew, MemberRole::kWorker), 0);
  EXPECT_EQ(HeldElements(1200, served, crew, MemberRole::kParameterServer), 600);
  EXPECT_NEAR(BytesPerParameter(served, crew), 2, 1e-3) << "the cache alone";
  // Master weights and slots, the same rounded, and the reduced gradient.
  EXPECT_NEAR(BytesPerParameter(served, crew, MemberRole::kParameterServer), 16.0 / 2, 1e-3);
  EXPECT_EQ(HeldElements(1200, served, {.workers = 4}, MemberRole::kWorker), 300)
      << "while there are no servers";
}

TEST(StateMemoryTest, OfAMixedStrategyWorkersHoldTheirShare) {
  const Strategy mixed{
      .sync = SyncPath::kParameterServer, .replicas = 0, .servers = 1, .mixed = true};
  const CrewSize crew{.workers = 4, .servers = 1};
  const ShareWeights weights = WeightsOf(mixed, 4, 1);
  EXPECT_EQ(weights.worker, 3);
  EXPECT_EQ(weights.server, 6);
  EXPECT_EQ(HeldElements(1800, mixed, crew, MemberRole::kWorker), 300);
  EXPECT_EQ(HeldElements(1800, mixed, crew, MemberRole::kParameterServer), 600);
  Strategy copied = mixed;
  copied.replicas = 1;
  EXPECT_EQ(HeldElements(1800, copied, crew, MemberRole::kWorker), 900) << "the server's, at worst";
}

TEST(StateMemoryTest, WithF32TheStateServesAsTheParametersInStageZero) {
  StateSize size = kMixed;
  size.parameter_bytes = size.gradient_bytes = 4;
  EXPECT_EQ(StateBytes(size, Stage(0), {.workers = 2}, MemberRole::kWorker), 16 * kElements);
  EXPECT_EQ(StateBytes(size, Stage(1), {.workers = 2}, MemberRole::kWorker),
            (12 / 2 + 4 + 4) * kElements);
}

TEST(StateMemoryTest, SeveralMicroBatchesOfAWorkerAreAddedUpInFull) {
  StateSize size = kMixed;
  size.micro_batches = 8;
  const auto bytes = [&](int workers) {
    return StateBytes(size, Stage(2), {.workers = workers}, MemberRole::kWorker);
  };
  EXPECT_NEAR(static_cast<double>(bytes(7) - bytes(8)) / kElements, 4 + 14.0 / 7 - 14.0 / 8, 1e-3);
}

}  // namespace
}  // namespace muster
