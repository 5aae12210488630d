// Parameters that several blocks read, that no block reads and that do not train, under every
// strategy: the same bits.
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/worker/runtime/strategies_fixture.h"

namespace muster {
namespace {

using TiedWeightsTest = StrategiesTest;

// Weights that two blocks read, next to each other and far apart; in stage 3 with few buffers and
// with a place for each block.
TEST_F(TiedWeightsTest, TiedWeightsMakeTheSameBits) {
  spec_.training.evaluate_every = 5;
  // So small that some ranks own nothing of a weight; that nothing divides it; many blocks.
  for (const std::vector<int32_t>& hidden :
       {std::vector<int32_t>{3, 2, 3}, {23, 7, 23}, std::vector<int32_t>(9, 24)}) {
    spec_.model = MlpSpec{.hidden = hidden, .tie_weights = true};
    for (const DType precision : {DType::kF32, DType::kBF16}) {
      spec_.training.precision = spec_.communication.gradients = precision;
      for (const int micro_batch : {4, 48 / 3}) {
        spec_.training.micro_batch = micro_batch;
        for (const int workers : {1, 4}) {
          const Result expected = TrainIn(workers, {});
          EXPECT_NE(expected.losses.back(), expected.losses.front());
          for (const Strategy& strategy :
               {Strategy{.stage = 1}, Strategy{.stage = 2}, Strategy{.stage = 3},
                Strategy{.sync = SyncPath::kParameterServer, .servers = 2}}) {
            SCOPED_TRACE(absl::StrCat(workers, " workers, micro-batches of ", micro_batch, ", ",
                                      hidden.size(), " hidden layers, ", Name(precision), ", ",
                                      ToString(strategy)));
            ExpectSame(TrainIn(workers, strategy), expected);
          }
        }
      }
    }
  }
}

// Of a weight that two blocks read, the twin nearest the input frozen, or all but one bias.
TEST_F(TiedWeightsTest, FrozenTiedWeightsStayAsTheyAreInEveryStage) {
  spec_.model = MlpSpec{.hidden = std::vector<int32_t>(9, 24), .tie_weights = true};
  spec_.training.micro_batch = 48 / 3;
  for (const std::vector<std::string>& frozen :
       {std::vector<std::string>{"fc1.*", "fc2.*", "fc3.*"}, {"fc4.weight"}, {"*.weight"}}) {
    spec_.training.optimizer.groups = {{.tensors = frozen, .frozen = true}};
    const Result expected = TrainIn(3, {});
    for (int stage : {1, 2, 3}) {
      EXPECT_EQ(TrainIn(3, {.stage = stage}).arrays, expected.arrays) << "stage " << stage;
    }
    EXPECT_EQ(TrainIn(3, {.sync = SyncPath::kParameterServer, .servers = 2}).arrays,
              expected.arrays);
  }
}

// No sample reaches the layers before a dead one: they have a gradient of zero, and not what
// another block has left in a buffer.
TEST_F(TiedWeightsTest, UnusedParametersOnlyDecayInEveryStage) {
  spec_.model = MlpSpec{.hidden = std::vector<int32_t>(9, 24)};
  spec_.training.micro_batch = 48 / 3;
  spec_.training.optimizer.rule = SgdSpec{.momentum = 0.9};
  spec_.training.optimizer.weight_decay = 0;
  dead_layer_ = "fc6";
  const Result expected = TrainIn(3, {});
  Rig untouched(spec_, files_);
  int moved = 0;
  for (const Tensor& tensor : untouched.job->layout().tensors()) {
    const auto first = untouched.replica->parameters().subspan(tensor.offset, tensor.count);
    const bool same =
        std::equal(first.begin(), first.end(), expected.arrays[0].begin() + tensor.offset);
    moved += same ? 0 : 1;
    // But for the bias that kills the layer.
    if (tensor.spec.name != "fc6.bias" && tensor.spec.block < 6) {
      EXPECT_TRUE(same) << tensor.spec.name;
    }
  }
  EXPECT_GT(moved, 1) << "nothing trains at all";
  for (int stage : {1, 2, 3}) {
    EXPECT_EQ(TrainIn(3, {.stage = stage}).arrays, expected.arrays) << "stage " << stage;
  }
  EXPECT_EQ(TrainIn(3, {.sync = SyncPath::kParameterServer, .servers = 2}).arrays, expected.arrays);
}

}  // namespace
}  // namespace muster
