// Every update rule and parameter groups in the step loop of a fleet without sessions or processes:
// workers agree bit by bit, the loss falls, and frozen tensors stay what they were.
#include <cmath>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "state/gradient_norm.h"
#include "tests/base/temporary_directory.h"
#include "tests/worker/runtime/small_job.h"
#include "tests/worker/runtime/trainer_rig.h"
#include "worker/device/registry.h"

namespace muster {
namespace {

struct RuleCase {
  std::string name;
  decltype(OptimizerSpec::rule) rule;
  double learning_rate;
};

class OptimizersTest : public testing::TestWithParam<RuleCase> {
 protected:
  OptimizersTest() : spec_(SmallJob(files_, directory_.path())) {
    spec_.training.optimizer = {.rule = GetParam().rule, .weight_decay = 0.01};
    spec_.training.learning_rate = {.peak = GetParam().learning_rate};
    spec_.training.clip_norm = 1;
  }

  std::vector<std::unique_ptr<Rig>> Train(int ranks) {
    auto rigs = MakeRigs(spec_, files_, ranks);
    muster::Train(rigs, 1, 1);
    for (const auto& rig : rigs) {
      EXPECT_EQ(rig->outcome.kind, TrainingOutcome::Kind::kPaused) << rig->outcome.status;
      EXPECT_EQ(rig->control.losses.size(), static_cast<size_t>(spec_.training.steps));
    }
    return rigs;
  }

  static absl::Span<const float> TensorOf(const Rig& rig, absl::string_view name) {
    const Tensor* tensor = rig.job->layout().Find(name);
    return rig.replica->parameters().subspan(tensor->offset, tensor->count);
  }

  PosixFileSystem files_;
  TemporaryDirectory directory_;
  JobSpec spec_;
};

TEST_P(OptimizersTest, WorkersAgreeAndTheLossFalls) {
  const auto one = Train(1);
  const std::vector<double>& losses = one[0]->control.losses;
  EXPECT_LT(losses.back(), 0.7 * losses.front());
  const auto three = Train(3);
  for (const auto& rig : three) {
    EXPECT_EQ(Hash(*rig), Hash(*three[0]));
    for (size_t step = 0; step < losses.size(); ++step) {
      // Sums in another order; Lion makes a whole step of the least difference in sign.
      EXPECT_NEAR(rig->control.losses[step], losses[step], 5e-3 * losses[step]) << step;
    }
  }
}

TEST_P(OptimizersTest, GroupsFreezeAndScaleOnEveryWorkerAlike) {
  spec_.training.steps = 10;
  spec_.training.optimizer.groups = {{.tensors = {"fc1.*"}, .frozen = true},
                                     {.tensors = {"fc2.bias"}, .frozen = true},
                                     {.tensors = {"fc3.*"}, .learning_rate_scale = 1e-4}};
  const auto rigs = Train(3);
  const Layout& layout = rigs[0]->job->layout();
  Replica initial(layout, rigs[0]->job->rule(), rigs[0]->job->learning_rate(), 0);
  initial.Initialize(spec_.training.seed, StateTag{});
  for (const auto& rig : rigs) {
    for (const Tensor& tensor : layout.tensors()) {
      const auto first = initial.parameters().subspan(tensor.offset, tensor.count);
      double moved = 0;
      for (int64_t i = 0; i < tensor.count; ++i) {
        moved = std::max(moved, std::abs(double{TensorOf(*rig, tensor.spec.name)[i]} - first[i]));
      }
      if (tensor.spec.frozen) {
        EXPECT_EQ(moved, 0) << tensor.spec.name;
      } else if (tensor.spec.block == 2) {
        EXPECT_GT(moved, 0) << tensor.spec.name;
        EXPECT_LT(moved, 2e-4) << tensor.spec.name;
      } else {
        EXPECT_GT(moved, 1e-3) << tensor.spec.name;
      }
    }
    EXPECT_EQ(rig->replica->Snapshot()->arrays, rigs[0]->replica->Snapshot()->arrays);
  }
}

// What is frozen counts in no norm: the first step's is that of the tensors that train.
TEST_P(OptimizersTest, NormIsOfWhatTrains) {
  spec_.training.steps = 1;
  const auto all = Train(1);
  SquaredSum head;
  const Tensor& last_weight = *all[0]->job->layout().Find("fc3.weight");
  head.Add(all[0]->replica->buffers().Reduced({last_weight.offset, last_weight.count}));
  spec_.training.optimizer.groups = {{.tensors = {"fc3.weight"}},
                                     {.tensors = {"*"}, .frozen = true}};
  const double norm = Train(2)[0]->control.records[0].gradient_norm;
  EXPECT_NEAR(norm, std::sqrt(head.Value()) / spec_.training.global_batch, 1e-5 * norm);
  EXPECT_LT(norm, 0.99 * all[0]->control.records[0].gradient_norm);
}

TEST_P(OptimizersTest, PatternWithoutTensorIsAnErrorOfTheJob) {
  spec_.training.optimizer.groups = {{.tensors = {"fc9.*"}, .frozen = true}};
  const auto device = CreateDevice("cpu", {}).value();
  const auto job = JobContext::Create("job", spec_, files_, *device);
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(job.status().message()),
              testing::HasSubstr("training.optimizer.groups[0].tensors[0]: \"fc9.*\""));
}

TEST_P(OptimizersTest, SettingsThatChangeTheNumbersChangeTheFingerprint) {
  const auto device = CreateDevice("cpu", {}).value();
  const auto fingerprint = [&] {
    return JobContext::Create("job", spec_, files_, *device).value()->fingerprint();
  };
  const uint64_t plain = fingerprint();
  spec_.training.learning_rate.peak *= 2;  // may change between runs
  EXPECT_EQ(fingerprint(), plain);
  spec_.training.optimizer.groups = {{.tensors = {"fc1.*"}, .learning_rate_scale = 2}};
  EXPECT_NE(fingerprint(), plain);
  spec_.training.optimizer.groups.clear();
  spec_.training.optimizer.weight_decay = 0.02;
  EXPECT_NE(fingerprint(), plain);
}

INSTANTIATE_TEST_SUITE_P(
    Rules, OptimizersTest,
    testing::Values(RuleCase{"Sgd", SgdSpec{.momentum = 0.9, .nesterov = true}, 0.1},
                    RuleCase{"AdamW", AdamWSpec{}, 1e-2}, RuleCase{"Lamb", LambSpec{}, 0.03},
                    RuleCase{"Lion", LionSpec{}, 2e-3},
                    RuleCase{"Adagrad", AdagradSpec{.initial_accumulator = 0.1}, 0.1}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace muster
