#include "worker/model/model.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/model/model_test_util.h"
#include "worker/device/registry.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ModelTest : public ::testing::TestWithParam<ModelConfig> {
 protected:
  std::unique_ptr<Device> device_ = CreateDevice("cpu", {}).value();
  std::unique_ptr<Model> model_ = CreateModel(GetParam(), *device_).value();
  std::vector<float> parameters_ = FirstParameters(*model_, 1);

  std::vector<float> GradientsOf(const Batch& batch) {
    std::vector<float> gradients(model_->layout().padded_count());
    EXPECT_TRUE(model_
                    ->ForwardBackward(parameters_, batch.inputs, batch.labels,
                                      absl::MakeSpan(gradients), IgnoreBlock)
                    .ok());
    return gradients;
  }
};

TEST_P(ModelTest, LayoutNeedsNoDevice) {
  EXPECT_EQ(CreateModelLayout(GetParam()).value().fingerprint(), model_->layout().fingerprint());
}

TEST_P(ModelTest, GradientsOfMicroBatchesAddUpToTheBatchs) {
  const Batch batch = MakeBatch(*model_, 12, 2);
  const std::vector<float> whole = GradientsOf(batch);
  std::vector<float> parts(model_->layout().padded_count());
  double loss = 0;
  for (int begin = 0; begin < 12; begin += 4) {
    loss += model_
                ->ForwardBackward(parameters_,
                                  absl::MakeConstSpan(batch.inputs)
                                      .subspan(begin * model_->features(), 4 * model_->features()),
                                  absl::MakeConstSpan(batch.labels).subspan(begin, 4),
                                  absl::MakeSpan(parts), IgnoreBlock)
                .value()
                .loss_sum;
  }
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(parts[i], whole[i], 1e-5);
  const BatchResult evaluated = model_->Evaluate(parameters_, batch.inputs, batch.labels).value();
  EXPECT_NEAR(loss, evaluated.loss_sum, 1e-5);
  EXPECT_EQ(evaluated.samples, 12);
}

TEST_P(ModelTest, RepeatsItsBitsWhateverRanBefore) {
  const Batch batch = MakeBatch(*model_, 9, 3);
  const std::vector<float> first = GradientsOf(batch);
  GradientsOf(MakeBatch(*model_, 30, 4));
  GradientsOf(MakeBatch(*model_, 2, 5));
  EXPECT_EQ(GradientsOf(batch), first);
  model_ = CreateModel(GetParam(), *device_).value();
  EXPECT_EQ(GradientsOf(batch), first);
}

TEST_P(ModelTest, ReportsBlocksFromTheLastOneWhenTheirGradientsAreComplete) {
  const Batch batch = MakeBatch(*model_, 5, 6);
  const std::vector<float> expected = GradientsOf(batch);
  const Layout& layout = model_->layout();
  std::vector<float> gradients(layout.padded_count());
  std::vector<int> order;
  const auto hook = [&](int block) {
    order.push_back(block);
    const auto [first, last] = layout.BucketsOfBlock(block);
    for (int i = first; i < last; ++i) {
      const Bucket& bucket = layout.buckets()[i];
      for (int64_t e = bucket.offset; e < bucket.offset + bucket.count; ++e) {
        EXPECT_EQ(gradients[e], expected[e]) << "block " << block;
      }
    }
    return absl::OkStatus();
  };
  ASSERT_TRUE(model_
                  ->ForwardBackward(parameters_, batch.inputs, batch.labels,
                                    absl::MakeSpan(gradients), hook)
                  .ok());
  std::vector<int> backwards;
  for (int block = layout.block_count(); block-- > 0;) backwards.push_back(block);
  EXPECT_EQ(order, backwards);
}

TEST_P(ModelTest, AnErrorOfTheHookEndsTheCall) {
  const Batch batch = MakeBatch(*model_, 5, 6);
  std::vector<float> gradients(model_->layout().padded_count());
  int calls = 0;
  const auto hook = [&](int) {
    ++calls;
    return absl::AbortedError("epoch is over");
  };
  EXPECT_EQ(model_
                ->ForwardBackward(parameters_, batch.inputs, batch.labels,
                                  absl::MakeSpan(gradients), hook)
                .status(),
            absl::AbortedError("epoch is over"));
  EXPECT_EQ(calls, 1);
}

TEST_P(ModelTest, LeavesPaddingAlone) {
  const Batch batch = MakeBatch(*model_, 5, 7);
  const Layout& layout = model_->layout();
  const float kMark = -123;
  std::vector<float> gradients(layout.padded_count(), kMark);
  for (const Tensor& tensor : layout.tensors()) {
    std::fill_n(gradients.begin() + tensor.offset, tensor.count, 0.0f);
  }
  ASSERT_TRUE(model_
                  ->ForwardBackward(parameters_, batch.inputs, batch.labels,
                                    absl::MakeSpan(gradients), IgnoreBlock)
                  .ok());
  int64_t marks = 0;
  for (const float value : gradients) marks += value == kMark;
  EXPECT_EQ(marks, layout.padded_count() - layout.parameter_count());
}

TEST_P(ModelTest, ANanInAnyTensorReachesTheLoss) {
  const Batch batch = MakeBatch(*model_, 5, 8);
  for (const Tensor& tensor : model_->layout().tensors()) {
    std::vector<float> bad = parameters_;
    bad[tensor.offset] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(model_->Evaluate(bad, batch.inputs, batch.labels).value().loss_sum))
        << tensor.spec.name;
  }
}

TEST_P(ModelTest, RefusesBatchesThatDoNotFit) {
  Batch batch = MakeBatch(*model_, 3, 9);
  const auto error = [&](absl::Span<const float> inputs, absl::Span<const int32_t> labels) {
    const absl::Status status = model_->Evaluate(parameters_, inputs, labels).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    std::vector<float> gradients(model_->layout().padded_count());
    EXPECT_EQ(
        model_->ForwardBackward(parameters_, inputs, labels, absl::MakeSpan(gradients), IgnoreBlock)
            .status(),
        status);
    return std::string(status.message());
  };
  EXPECT_THAT(error({}, {}), HasSubstr("empty"));
  EXPECT_THAT(error(absl::MakeConstSpan(batch.inputs).subspan(1), batch.labels),
              HasSubstr("expected 3 samples"));
  batch.labels[1] = static_cast<int32_t>(model_->classes());
  EXPECT_THAT(error(batch.inputs, batch.labels), HasSubstr("sample 1"));
  batch.labels[1] = -1;
  EXPECT_THAT(error(batch.inputs, batch.labels), HasSubstr("label -1"));
}

INSTANTIATE_TEST_SUITE_P(Models, ModelTest, ::testing::Values(TinyMlp(), TinyCnn(), TinyTiedMlp()),
                         [](const auto& info) {
                           return absl::StrCat(std::string(TypeName(info.param)), info.index);
                         });

TEST(TiedModelTest, EachWeightIsThereOnceAndReadTwice) {
  const Layout layout = CreateModelLayout(TinyTiedMlp()).value();
  std::vector<std::string> names;
  for (const Tensor& tensor : layout.tensors()) names.push_back(tensor.spec.name);
  EXPECT_THAT(names, ElementsAre("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "fc3.weight",
                                 "fc3.bias", "fc4.bias", "fc5.bias", "fc6.weight", "fc6.bias"));
  EXPECT_THAT(layout.TiedBlocks(3), ElementsAre(2));
  EXPECT_THAT(layout.TiedBlocks(4), ElementsAre(1));
  EXPECT_THAT(layout.TiedTensors(4), ElementsAre(2));
  for (const int block : {0, 1, 2, 5}) EXPECT_TRUE(layout.TiedBlocks(block).empty()) << block;
}

// The gradient of a frozen weight is nobody's concern, whoever else reads it.
TEST(TiedModelTest, AFrozenWeightLeavesTheGradientsOfOthersAsTheyAre) {
  const auto device = CreateDevice("cpu", {}).value();
  const auto whole = CreateModel(TinyTiedMlp(), *device).value();
  ModelConfig config = TinyTiedMlp();
  for (const std::vector<std::string>& frozen :
       {std::vector<std::string>{"fc2.weight"}, {"fc1.*", "fc2.*"}, {"fc1.*", "fc2.*", "fc3.*"}}) {
    config.groups = {{.tensors = frozen, .frozen = true}};
    const auto model = CreateModel(config, *device).value();
    const std::vector<float> parameters = FirstParameters(*model, 1);
    const Batch batch = MakeBatch(*model, 6, 2);
    std::vector<float> expected(parameters.size()), gradients(parameters.size());
    ASSERT_TRUE(whole
                    ->ForwardBackward(parameters, batch.inputs, batch.labels,
                                      absl::MakeSpan(expected), IgnoreBlock)
                    .ok());
    ASSERT_TRUE(model
                    ->ForwardBackward(parameters, batch.inputs, batch.labels,
                                      absl::MakeSpan(gradients), IgnoreBlock)
                    .ok());
    for (const Tensor& tensor : model->layout().tensors()) {
      if (tensor.spec.frozen) continue;
      for (int64_t i = tensor.offset; i < tensor.offset + tensor.count; ++i) {
        ASSERT_EQ(gradients[i], expected[i]) << tensor.spec.name;
      }
    }
  }
}

TEST(FrozenModelTest, BackwardStopsBehindTheFirstTrainedBlock) {
  const auto device = CreateDevice("cpu", {}).value();
  for (ModelConfig config : {TinyMlp(), TinyCnn()}) {
    SCOPED_TRACE(TypeName(config));
    const auto whole = CreateModel(config, *device).value();
    const int block = whole->layout().block_count() - 2;  // trains, but for its bias
    std::vector<std::string> frozen;
    for (const Tensor& tensor : whole->layout().tensors()) {
      const bool bias = tensor.spec.shape.size() == 1;
      if (tensor.spec.block < block || (tensor.spec.block == block && bias)) {
        frozen.push_back(tensor.spec.name);
      }
    }
    config.groups = {{.tensors = frozen, .frozen = true}};
    const auto model = CreateModel(config, *device).value();
    EXPECT_EQ(model->layout().first_trained_block(), block);

    const std::vector<float> parameters = FirstParameters(*model, 1);
    EXPECT_EQ(parameters, FirstParameters(*whole, 1));
    const Batch batch = MakeBatch(*model, 6, 2);
    std::vector<float> expected(parameters.size()), gradients(parameters.size());
    std::vector<int> done;
    ASSERT_TRUE(whole
                    ->ForwardBackward(parameters, batch.inputs, batch.labels,
                                      absl::MakeSpan(expected), IgnoreBlock)
                    .ok());
    ASSERT_TRUE(model
                    ->ForwardBackward(parameters, batch.inputs, batch.labels,
                                      absl::MakeSpan(gradients),
                                      [&](int block_done) {
                                        done.push_back(block_done);
                                        return absl::OkStatus();
                                      })
                    .ok());
    // Every block is told of, in the usual order: the fleet counts on it.
    ASSERT_EQ(static_cast<int>(done.size()), model->layout().block_count());
    for (size_t i = 0; i < done.size(); ++i)
      EXPECT_EQ(done[i], static_cast<int>(done.size() - i) - 1);
    for (const Tensor& tensor : model->layout().tensors()) {
      for (int64_t i = tensor.offset; i < tensor.offset + tensor.count; ++i) {
        if (tensor.spec.block < block) {
          ASSERT_EQ(gradients[i], 0) << tensor.spec.name;
        } else if (!tensor.spec.frozen) {
          ASSERT_EQ(gradients[i], expected[i]) << tensor.spec.name;
        }
      }
    }
  }
}

// Names, shapes, blocks and first values follow PyTorch, whose checkpoints must open here.
TEST(ModelLayoutTest, CnnHasTorchNamesAndShapes) {
  const Layout layout = CreateModelLayout({.architecture = CnnConfig{}}).value();
  std::vector<std::string> tensors;
  for (const Tensor& tensor : layout.tensors()) {
    std::string shape;
    for (const int64_t extent : tensor.spec.shape) absl::StrAppend(&shape, " ", extent);
    tensors.push_back(absl::StrCat(tensor.spec.name, shape, " block ", tensor.spec.block));
    EXPECT_EQ(tensor.spec.decay, tensor.spec.shape.size() > 1) << tensor.spec.name;
  }
  EXPECT_THAT(tensors, ElementsAre("conv1.weight 16 1 3 3 block 0", "conv1.bias 16 block 0",
                                   "conv2.weight 32 16 3 3 block 1", "conv2.bias 32 block 1",
                                   "fc1.weight 128 1568 block 2", "fc1.bias 128 block 2",
                                   "fc2.weight 10 128 block 3", "fc2.bias 10 block 3"));
  const TensorSpec& weight = layout.Find("conv2.weight")->spec;
  EXPECT_EQ(weight.initializer, Initializer::kUniform);
  EXPECT_FLOAT_EQ(weight.scale, 1 / std::sqrt(16.0f * 9));
  EXPECT_FLOAT_EQ(layout.Find("conv2.bias")->spec.scale, 1 / std::sqrt(16.0f * 9));
}

}  // namespace
}  // namespace muster
