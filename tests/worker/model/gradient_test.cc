// Loss and every gradient beside an independent model in double precision: finite differences
// there are good to eight digits, so they can judge single-precision gradients.
#include <cmath>

#include "gtest/gtest.h"
#include "tests/worker/model/model_test_util.h"
#include "tests/worker/model/reference_model.h"
#include "worker/device/registry.h"

namespace muster {
namespace {

class GradientTest : public ::testing::TestWithParam<ModelConfig> {};

TEST_P(GradientTest, MatchesFiniteDifferences) {
  const auto device = CreateDevice("cpu", {}).value();
  const auto model = CreateModel(GetParam(), *device).value();
  const Layout& layout = model->layout();
  const std::vector<float> parameters = FirstParameters(*model, 3);
  const Batch batch = MakeBatch(*model, 6, 4);
  std::vector<float> gradients(layout.padded_count());
  const BatchResult result = model
                                 ->ForwardBackward(parameters, batch.inputs, batch.labels,
                                                   absl::MakeSpan(gradients), IgnoreBlock)
                                 .value();

  std::vector<double> moved(parameters.begin(), parameters.end());
  const auto loss = [&] {
    return ReferenceLoss(GetParam(), layout, moved, batch.inputs, batch.labels);
  };
  EXPECT_NEAR(result.loss_sum, loss(), 1e-5);
  EXPECT_EQ(result.samples, 6);

  constexpr double kStep = 1e-6;
  for (const Tensor& tensor : layout.tensors()) {
    std::vector<double> expected(tensor.count);
    double largest = 0;
    for (int64_t i = 0; i < tensor.count; ++i) {
      double& value = moved[tensor.offset + i];
      const double original = value;
      value = original + kStep;
      const double above = loss();
      value = original - kStep;
      const double below = loss();
      value = original;
      expected[i] = (above - below) / (2 * kStep);
      largest = std::max(largest, std::abs(expected[i]));
    }
    EXPECT_GT(largest, 1e-3) << tensor.spec.name << ": a gradient that is all zero tests nothing";
    for (int64_t i = 0; i < tensor.count; ++i) {
      EXPECT_NEAR(gradients[tensor.offset + i], expected[i], 1e-5 * largest + 1e-7)
          << tensor.spec.name << "[" << i << "]";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, GradientTest,
    ::testing::Values(TinyMlp(), TinyCnn(), TinyTiedMlp(),
                      ModelConfig{
                          .architecture = MlpConfig{.input = 5, .hidden = {}, .classes = 3}},
                      // One pixel left before fc1.
                      ModelConfig{.architecture = CnnConfig{.height = 2,
                                                            .width = 3,
                                                            .channels = 1,
                                                            .conv_channels = {17},
                                                            .hidden = 4,
                                                            .classes = 2}}),
    [](const auto& info) { return absl::StrCat(std::string(TypeName(info.param)), info.index); });

}  // namespace
}  // namespace muster
