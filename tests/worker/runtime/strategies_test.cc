// Every strategy takes the same steps, bit for bit, and keeps only what is its own.
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/worker/runtime/strategies_fixture.h"

namespace muster {
namespace {

struct Way {
  int stage = 0;
  int replicas = 1;
  Algorithm algorithm = Algorithm::kAuto;
};

TEST_F(StrategiesTest, EveryStageMakesTheSameBits) {
  spec_.training.evaluate_every = 5;
  for (int ranks : {1, 2, 3, 5}) {
    // Several micro-batches for each rank; one for each; fewer than ranks.
    for (int micro_batch : {4, 48 / 3, 48}) {
      spec_.training.micro_batch = micro_batch;
      const Result expected = TrainIn(ranks, {});
      ASSERT_EQ(expected.losses.size(), 12u);
      for (const Way& way : {Way{1, 0}, Way{1, 1}, Way{2, 1}, Way{2, 2}, Way{3, 0}, Way{3, 1}}) {
        SCOPED_TRACE(absl::StrCat(ranks, " ranks, micro-batches of ", micro_batch, ", stage ",
                                  way.stage, ", replicas ", way.replicas));
        ExpectSame(TrainIn(ranks, {.stage = way.stage, .replicas = way.replicas}), expected);
      }
    }
  }
}

// Servers of their own, on the workers, and both, with fewer and with more workers than servers.
TEST_F(StrategiesTest, ParameterServersMakeTheSameBits) {
  spec_.training.evaluate_every = 5;
  for (int workers : {1, 2, 3, 5}) {
    for (int micro_batch : {4, 48}) {
      spec_.training.micro_batch = micro_batch;
      const Result expected = TrainIn(workers, {});
      for (int servers : {0, 1, 2, 4}) {
        for (bool mixed : {false, true}) {
          if (mixed && servers == 0) continue;
          SCOPED_TRACE(absl::StrCat(workers, " workers, ", servers, " servers, micro-batches of ",
                                    micro_batch, mixed ? ", mixed" : ""));
          ExpectSame(
              TrainIn(workers,
                      {.sync = SyncPath::kParameterServer, .servers = servers, .mixed = mixed}),
              expected);
        }
      }
    }
  }
}

TEST_F(StrategiesTest, StrategiesMakeTheSameBitsOfRoundedTypes) {
  spec_.training.evaluate_every = 5;
  using Kind = GradientCompression::Kind;
  struct Types {
    DType parameters;
    DType gradients;
    GradientCompression compression = {};
  };
  const GradientCompression top_k{.kind = Kind::kTopK, .top_k_fraction = 0.05};
  for (const Types& types :
       {Types{DType::kBF16, DType::kBF16}, Types{DType::kF32, DType::kBF16},
        Types{DType::kF32, DType::kF16}, Types{DType::kF32, DType::kBF16, {.kind = Kind::kInt8}},
        Types{DType::kBF16, DType::kBF16, {.kind = Kind::kInt8}},
        Types{DType::kF32, DType::kBF16, top_k}}) {
    spec_.training.precision = types.parameters;
    spec_.communication.gradients = types.gradients;
    spec_.communication.compression = types.compression;
    for (int micro_batch : {4, 16, 48}) {
      const int workers = 3;
      spec_.training.micro_batch = micro_batch;
      const Result expected = TrainIn(workers, {});
      const Strategy strategies[] = {
          {.stage = 1},
          {.stage = 2, .replicas = 2},
          {.stage = 3, .replicas = 0},
          {.stage = 3},
          {.sync = SyncPath::kParameterServer},
          {.sync = SyncPath::kParameterServer, .servers = 2},
          {.sync = SyncPath::kParameterServer, .servers = 1, .mixed = true},
      };
      for (const Strategy& strategy : strategies) {
        SCOPED_TRACE(absl::StrCat(Name(types.parameters), " ", Name(types.gradients), " ",
                                  static_cast<int>(types.compression.kind), ", micro-batches of ",
                                  micro_batch, ", ", ToString(strategy)));
        ExpectSame(TrainIn(workers, strategy), expected);
      }
    }
  }
}

// So many blocks of like size that those on their way take less memory than all together. Workers
// that add up several micro-batches have the whole gradient in one piece, servers beside them do
// not: all must do what they do with each other in one order.
TEST_F(StrategiesTest, ManyBlocksGoThroughFewBuffers) {
  spec_.model = MlpSpec{.hidden = std::vector<int32_t>(9, 24)};
  spec_.training.evaluate_every = 5;
  for (int ranks : {1, 3, 4}) {
    for (int micro_batch : {4, 48 / 3}) {
      spec_.training.micro_batch = micro_batch;
      const Result expected = TrainIn(ranks, {});
      for (const Strategy& strategy :
           {Strategy{.stage = 1}, Strategy{.stage = 2}, Strategy{.stage = 3},
            Strategy{.sync = SyncPath::kParameterServer, .servers = 2},
            Strategy{.sync = SyncPath::kParameterServer, .servers = 1, .mixed = true},
            Strategy{.sync = SyncPath::kParameterServer, .servers = 2, .mixed = true}}) {
        SCOPED_TRACE(absl::StrCat(ranks, " ranks, micro-batches of ", micro_batch, ", ",
                                  ToString(strategy)));
        ExpectSame(TrainIn(ranks, strategy), expected);
      }
    }
  }
}

TEST_F(StrategiesTest, FrozenTensorsStayAsTheyAreInEveryStage) {
  spec_.training.optimizer.groups = {{.tensors = {"fc1.*"}, .frozen = true}};
  const Result expected = TrainIn(3, {});
  for (int stage : {1, 2, 3}) {
    EXPECT_EQ(TrainIn(3, {.stage = stage}).arrays, expected.arrays) << "stage " << stage;
  }
  EXPECT_EQ(TrainIn(3, {.sync = SyncPath::kParameterServer, .servers = 2}).arrays, expected.arrays);
}

TEST_F(StrategiesTest, ClippedStepsAreTheSameInEveryStage) {
  spec_.training.clip_norm = 0.05;
  const Result expected = TrainIn(4, {});
  for (int stage : {1, 2, 3}) {
    EXPECT_EQ(TrainIn(4, {.stage = stage}).arrays, expected.arrays) << "stage " << stage;
  }
  EXPECT_EQ(TrainIn(4, {.sync = SyncPath::kParameterServer, .servers = 3, .mixed = true}).arrays,
            expected.arrays);
}

}  // namespace
}  // namespace muster
