// Gradients and ten training steps beside PyTorch's, stored by tests/data/make_torch_fixture.py.
// Everything that makes a step is Muster's own: model, norm, clipping, schedule, update rule.
#include <cmath>
#include <fstream>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "state/clip_norm.h"
#include "state/gradient_norm.h"
#include "state/step_scalars.h"
#include "state/update_rule.h"
#include "worker/device/registry.h"
#include "worker/model/model.h"

namespace muster {
namespace {

using nlohmann::json;

constexpr char kFixture[] = "tests/data/torch_training.json";

ModelConfig ConfigFrom(const json& config) {
  if (config.at("type") == "mlp") {
    return {.architecture = MlpConfig{.input = config.at("input"),
                                      .hidden = config.at("hidden"),
                                      .classes = config.at("classes"),
                                      .tie_weights = config.value("tie_weights", false)}};
  }
  return {.architecture = CnnConfig{.height = config.at("height"),
                                    .width = config.at("width"),
                                    .channels = config.at("channels"),
                                    .conv_channels = config.at("conv_channels"),
                                    .hidden = config.at("hidden"),
                                    .classes = config.at("classes")}};
}

UpdateRuleOptions OptimizerFrom(const json& optimizer) {
  const std::string type = optimizer.at("type");
  if (type == "sgd") {
    return SgdOptions{.momentum = optimizer.at("momentum"),
                      .nesterov = optimizer.at("nesterov"),
                      .weight_decay = optimizer.at("weight_decay")};
  }
  if (type == "adagrad") {
    return AdagradOptions{.learning_rate_decay = optimizer.at("learning_rate_decay"),
                          .initial_accumulator = optimizer.at("initial_accumulator"),
                          .epsilon = optimizer.at("epsilon"),
                          .weight_decay = optimizer.at("weight_decay")};
  }
  if (type == "lamb") {
    return LambOptions{.beta1 = optimizer.at("beta1"),
                       .beta2 = optimizer.at("beta2"),
                       .epsilon = optimizer.at("epsilon"),
                       .always_adapt = optimizer.at("always_adapt"),
                       .weight_decay = optimizer.at("weight_decay")};
  }
  if (type == "lion") {
    return LionOptions{.beta1 = optimizer.at("beta1"),
                       .beta2 = optimizer.at("beta2"),
                       .weight_decay = optimizer.at("weight_decay")};
  }
  EXPECT_EQ(type, "adamw");
  return AdamWOptions{.beta1 = optimizer.at("beta1"),
                      .beta2 = optimizer.at("beta2"),
                      .epsilon = optimizer.at("epsilon"),
                      .weight_decay = optimizer.at("weight_decay")};
}

std::vector<ParameterGroupSpec> GroupsFrom(const json& optimizer) {
  std::vector<ParameterGroupSpec> groups;
  for (const json& group : optimizer.value("groups", json::array())) {
    groups.push_back({.tensors = group.at("tensors"),
                      .learning_rate_scale = group.value("learning_rate_scale", 1.0),
                      .frozen = group.value("frozen", false)});
    if (group.contains("weight_decay")) groups.back().weight_decay = group.at("weight_decay");
  }
  return groups;
}

// The flat space from tensors by name; each tensor of the layout must be there in its shape.
std::vector<float> Flatten(const Layout& layout, const json& tensors) {
  EXPECT_EQ(tensors.size(), layout.tensors().size());
  std::vector<float> flat(layout.padded_count());
  for (const Tensor& tensor : layout.tensors()) {
    const json& stored = tensors.at(tensor.spec.name);
    EXPECT_EQ(stored.at("shape").get<std::vector<int64_t>>(), tensor.spec.shape);
    const auto values = stored.at("values").get<std::vector<float>>();
    EXPECT_EQ(static_cast<int64_t>(values.size()), tensor.count);
    std::copy(values.begin(), values.end(), flat.begin() + tensor.offset);
  }
  return flat;
}

// Per tensor: the norm of the difference, and every element on the scale of the largest.
void ExpectClose(const Layout& layout, const std::vector<float>& actual,
                 const std::vector<float>& expected, double tolerance) {
  for (const Tensor& tensor : layout.tensors()) {
    double difference = 0, norm = 0, largest = 0, worst = 0;
    for (int64_t i = tensor.offset; i < tensor.offset + tensor.count; ++i) {
      const double d = double{actual[i]} - expected[i];
      difference += d * d;
      norm += double{expected[i]} * expected[i];
      worst = std::max(worst, std::abs(d));
      largest = std::max(largest, std::abs(double{expected[i]}));
    }
    EXPECT_GT(norm, 0) << tensor.spec.name;
    EXPECT_LT(std::sqrt(difference / norm), tolerance) << tensor.spec.name;
    EXPECT_LT(worst / largest, tolerance) << tensor.spec.name;
  }
}

class TorchParityTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    std::ifstream file(kFixture);
    ASSERT_TRUE(file) << kFixture << " not found; tests run from the root of the source tree";
    fixture_ = json::parse(file).at("models").at(GetParam());
    model_ = CreateModel(ConfigFrom(fixture_.at("config")), *device_).value();
  }

  const Layout& layout() const { return model_->layout(); }

  // The model's answer to batch `index`; the gradient of the sum goes to `gradients`.
  BatchResult Run(int index, const std::vector<float>& parameters, std::vector<float>& gradients) {
    const json& batch = fixture_.at("batches").at(index);
    std::vector<float> inputs;
    for (const auto& row : batch.at("inputs")) {
      for (const int value : row.get<std::vector<int>>()) {
        inputs.push_back(static_cast<float>(value) / 256);
      }
    }
    gradients.assign(layout().padded_count(), 0.0f);
    return model_
        ->ForwardBackward(parameters, inputs, batch.at("labels").get<std::vector<int32_t>>(),
                          absl::MakeSpan(gradients), [](int) { return absl::OkStatus(); })
        .value();
  }

  void TrainLike(const json& run);

  json fixture_;
  std::unique_ptr<Device> device_ = CreateDevice("cpu", {}).value();
  std::unique_ptr<Model> model_;
};

TEST_P(TorchParityTest, GradientsMatch) {
  const std::vector<float> parameters = Flatten(layout(), fixture_.at("parameters"));
  std::vector<float> gradients;
  const BatchResult result = Run(0, parameters, gradients);
  for (float& value : gradients) value /= static_cast<float>(result.samples);
  ExpectClose(layout(), gradients, Flatten(layout(), fixture_.at("gradients")), 1e-5);
}

void TorchParityTest::TrainLike(const json& run) {
  ModelConfig config = ConfigFrom(fixture_.at("config"));
  config.groups = GroupsFrom(run.at("optimizer"));
  model_ = CreateModel(config, *device_).value();
  const auto rule = UpdateRule::Create(OptimizerFrom(run.at("optimizer")), layout()).value();
  std::vector<std::vector<float>> slots(rule->state_slots(),
                                        std::vector<float>(layout().padded_count()));
  std::vector<absl::Span<float>> state;
  for (auto& slot : slots) state.push_back(absl::MakeSpan(slot));
  const auto steps = static_cast<int64_t>(run.at("losses").size());
  ASSERT_EQ(steps, 10);
  const LearningRateOptions rate{
      .schedule = LearningRateScheduleFromName(run.at("schedule").get<std::string>()).value(),
      .peak = run.at("learning_rate"),
      .total_steps = steps};

  std::vector<float> parameters = Flatten(layout(), fixture_.at("parameters"));
  std::vector<float> gradients;
  bool clipped = false;
  for (Step step = 1; step <= steps; ++step) {
    const BatchResult result = Run(static_cast<int>(step - 1), parameters, gradients);
    const double loss = run.at("losses").at(step - 1);
    EXPECT_NEAR(result.loss_sum / result.samples / loss, 1, 1e-5) << "step " << step;
    SquaredSum squared;
    AddTrainedSquares(layout(), {0, layout().padded_count()}, gradients, squared);
    const GradientScale scale =
        ComputeGradientScale(squared.Value(), result.samples, run.at("max_norm"));
    EXPECT_NEAR(scale.norm / run.at("norms").at(step - 1).get<double>(), 1, 1e-4);
    clipped |= scale.clipped;
    UpdateScalars scalars{.learning_rate = LearningRate(rate, step),
                          .gradient_scale = scale.scale,
                          .update_count = step};
    const Range whole = {0, layout().padded_count()};
    TensorSums sums(rule->factor_count());
    rule->Prepare(whole, scalars, parameters, gradients, state, sums);
    scalars.tensor_factors = rule->TensorFactors(sums);
    rule->Apply(whole, scalars, absl::MakeSpan(parameters), gradients, state);
  }
  EXPECT_EQ(clipped, run.at("max_norm") > 0);
  ExpectClose(layout(), parameters, Flatten(layout(), run.at("final_parameters")), 1e-4);
}

TEST_P(TorchParityTest, TenStepsMatch) {
  ASSERT_EQ(fixture_.at("runs").size(), 10u);
  for (const json& run : fixture_.at("runs")) {
    SCOPED_TRACE(run.at("optimizer").dump() + " " + run.at("schedule").dump());
    TrainLike(run);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TorchParityTest, ::testing::Values(0, 1, 2));

}  // namespace
}  // namespace muster
