#include "worker/runtime/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "base/float16.h"
#include "gtest/gtest.h"
#include "tests/base/temporary_directory.h"
#include "tests/worker/runtime/small_job.h"
#include "tests/worker/runtime/trainer_rig.h"

namespace muster {
namespace {

class TrainerTest : public testing::Test {
 protected:
  TrainerTest() : spec_(SmallJob(files_, directory_.path())) {}

  std::vector<std::unique_ptr<Rig>> MakeRigs(int ranks) {
    return muster::MakeRigs(spec_, files_, ranks);
  }

  PosixFileSystem files_;
  TemporaryDirectory directory_;
  JobSpec spec_;
};

TEST_F(TrainerTest, OneToFourWorkersFollowTheSameLossCurve) {
  auto reference = MakeRigs(1);
  Train(reference, 1, 1);
  ASSERT_EQ(reference[0]->outcome.kind, TrainingOutcome::Kind::kPaused)
      << reference[0]->outcome.status;
  ASSERT_EQ(reference[0]->control.losses.size(), 50u);
  for (int ranks = 2; ranks <= 4; ++ranks) {
    auto rigs = MakeRigs(ranks);
    Train(rigs, 1, 1);
    for (const auto& rig : rigs) {
      ASSERT_EQ(rig->outcome.kind, TrainingOutcome::Kind::kPaused) << rig->outcome.status;
      EXPECT_EQ(Hash(*rig), Hash(*rigs[0])) << "replicas differ";
      EXPECT_EQ(rig->control.records, rigs[0]->control.records);
      ASSERT_EQ(rig->control.losses.size(), 50u);
      for (int i = 0; i < 50; ++i) {
        const double expected = reference[0]->control.losses[i];
        EXPECT_NEAR(rig->control.losses[i], expected, 1e-4 * expected)
            << ranks << " workers, step " << i + 1;
      }
    }
  }
}

TEST_F(TrainerTest, MoreWorkersThanMicroBatchesTrainTheSame) {
  spec_.training.global_batch = 8;  // two micro-batches
  spec_.training.steps = 10;
  auto one = MakeRigs(1);
  Train(one, 1, 1);
  auto five = MakeRigs(5);
  Train(five, 1, 1);
  for (const auto& rig : five) {
    ASSERT_EQ(rig->control.losses.size(), 10u);
    EXPECT_NEAR(rig->control.losses[9], one[0]->control.losses[9],
                1e-4 * one[0]->control.losses[9]);
    EXPECT_EQ(rig->control.records[9].samples, 8);
  }
}

TEST_F(TrainerTest, LearnsAndEvaluatesOnEveryRankAlike) {
  spec_.training.steps = 250;
  spec_.training.evaluate_every = 100;
  auto rigs = MakeRigs(3);
  Train(rigs, 1, 1);
  for (const auto& rig : rigs) {
    ASSERT_EQ(rig->control.evaluations.size(), 2u);
    EXPECT_EQ(rig->control.evaluations[1].test_accuracy,
              rigs[0]->control.evaluations[1].test_accuracy);
    EXPECT_GT(rig->control.evaluations[1].test_accuracy, 0.9);
  }
}

TEST_F(TrainerTest, PauseFlagOfOneRankPausesAllAfterTheSameStep) {
  auto rigs = MakeRigs(3);
  rigs[1]->control.pause_at = 7;
  Train(rigs, 1, 1);
  for (const auto& rig : rigs) {
    EXPECT_EQ(rig->outcome.kind, TrainingOutcome::Kind::kPaused);
    EXPECT_EQ(rig->replica->counters().tag.step, 7);
  }
}

// A pause, then the rest with another number of workers: the same samples, the same curve.
TEST_F(TrainerTest, GoesOnWithAnotherNumberOfWorkers) {
  auto reference = MakeRigs(1);
  Train(reference, 1, 1);
  auto rigs = MakeRigs(4);
  for (auto& rig : rigs) rig->control.pause_at = 20;
  Train(rigs, 1, 1);
  rigs.resize(2);
  Train(rigs, 21, 2);
  for (const auto& rig : rigs) {
    ASSERT_EQ(rig->control.losses.size(), 50u);
    for (int i = 0; i < 50; ++i) {
      EXPECT_NEAR(rig->control.losses[i], reference[0]->control.losses[i],
                  1e-4 * reference[0]->control.losses[i]);
    }
    EXPECT_EQ(rig->replica->counters().tag, (StateTag{0, 50, 2}));
  }
}

// One rank is refused at the second door; the others hold the record. Rolling forward from the
// gradient still in memory gives the bits they have.
TEST_F(TrainerTest, RollForwardGivesTheSameBits) {
  auto rigs = MakeRigs(3);
  rigs[2]->control.refuse_record = 9;
  rigs[0]->control.pause_at = rigs[1]->control.pause_at = 9;
  Train(rigs, 1, 1);
  EXPECT_EQ(rigs[2]->outcome.kind, TrainingOutcome::Kind::kStopped);
  EXPECT_EQ(rigs[2]->replica->counters().tag.step, 8);
  const CommitRecord record = rigs[0]->control.records.back();
  ASSERT_EQ(record.step, 9);
  rigs[2]->replica->Apply(record);
  EXPECT_EQ(rigs[2]->replica->counters().tag, rigs[0]->replica->counters().tag);
  EXPECT_EQ(Hash(*rigs[2]), Hash(*rigs[0]));
}

TEST_F(TrainerTest, MemberThatStaysOutOfTheCommitStopsEveryone) {
  spec_.communication.timeout_ms = 1'000;
  auto rigs = MakeRigs(2);
  rigs[1]->control.refuse_prepared = 5;
  Train(rigs, 1, 1);
  EXPECT_EQ(rigs[1]->outcome.kind, TrainingOutcome::Kind::kStopped);
  EXPECT_EQ(rigs[0]->outcome.kind, TrainingOutcome::Kind::kMeshFailed);
  EXPECT_EQ(rigs[0]->replica->counters().tag.step, 4) << "nobody may hold the record";
}

// Also where norms of whole tensors would have to be known, and the gradient's before them.
TEST_F(TrainerTest, NonfiniteLossSkipsTheUpdateOnAllRanksAndThenEndsTheJob) {
  spec_.training.optimizer.weight_decay = 0;
  spec_.training.learning_rate = {.peak = 1e30};
  spec_.training.max_nonfinite_steps = 3;
  const auto fails = [&] {
    auto rigs = MakeRigs(2);
    Train(rigs, 1, 1);
    for (const auto& rig : rigs) {
      EXPECT_EQ(rig->outcome.kind, TrainingOutcome::Kind::kJobFailed);
      EXPECT_THAT(std::string(rig->outcome.status.message()),
                  testing::HasSubstr("3 steps in a row"));
      EXPECT_EQ(rig->replica->counters().nonfinite_in_row, 3);
      EXPECT_EQ(Hash(*rig), Hash(*rigs[0]));
    }
  };
  spec_.training.optimizer.rule = SgdSpec{};
  fails();
  spec_.training.optimizer.rule = LambSpec{};
  fails();
  spec_.training.clip_norm = 1;
  fails();
}

// Against the definition: masters in f32, gradients at rounded parameters, each worker's sum over
// its micro-batches rounded, the sum of these in f32 rounded once.
TEST_F(TrainerTest, HalfPrecisionRoundsParametersAndContributionsOnce) {
  spec_.training.precision = DType::kBF16;
  spec_.communication.gradients = DType::kBF16;
  spec_.training.steps = 8;
  constexpr int kRanks = 2;
  auto rigs = MakeRigs(kRanks);
  Train(rigs, 1, 1);

  Rig reference(spec_, files_);
  const Layout& layout = reference.job->layout();
  const auto count = static_cast<size_t>(layout.padded_count());
  std::vector<float> masters(reference.replica->parameters().begin(),
                             reference.replica->parameters().end());
  std::vector<std::vector<float>> slots(reference.job->rule().state_slots(),
                                        std::vector<float>(count));
  const auto rounded = [](float value) { return BF16ToF32(F32ToBF16(value)); };
  const BatchPlan& plan = reference.job->plan();
  for (Step step = 1; step <= spec_.training.steps; ++step) {
    std::vector<float> parameters(count);
    std::transform(masters.begin(), masters.end(), parameters.begin(), rounded);
    std::vector<std::vector<float>> contributions;
    for (Rank rank = 0; rank < kRanks; ++rank) {
      std::vector<float> gradient(count);
      const MicroBatchRange mine = plan.MicroBatchesOf(rank, kRanks);
      for (int32_t m = mine.first; m < mine.last; ++m) {
        const Dataset& data = reference.job->train();
        std::vector<float> inputs(plan.micro_batch_size * data.feature_count());
        std::vector<int32_t> labels(plan.micro_batch_size);
        data.Gather(plan.SamplesOf(step, m), absl::MakeSpan(inputs), absl::MakeSpan(labels));
        FlatMemory memory(layout, parameters, absl::MakeSpan(gradient),
                          [](int) { return absl::OkStatus(); });
        ASSERT_TRUE(reference.job->model().ForwardBackward(memory, inputs, labels).ok());
      }
      std::transform(gradient.begin(), gradient.end(), gradient.begin(), rounded);
      contributions.push_back(std::move(gradient));
    }
    std::vector<float> sum(count);  // of two the order does not matter
    for (size_t i = 0; i < count; ++i) sum[i] = rounded(contributions[0][i] + contributions[1][i]);
    const UpdateScalars scalars{
        .learning_rate = LearningRate(reference.job->learning_rate(), step),
        .gradient_scale = 1.0 / static_cast<double>(plan.samples_per_step()),
        .update_count = step};
    std::vector<absl::Span<float>> state;
    for (std::vector<float>& slot : slots) state.push_back(absl::MakeSpan(slot));
    reference.job->rule().Apply({0, layout.padded_count()}, scalars, absl::MakeSpan(masters), sum,
                                state);
  }
  for (const auto& rig : rigs) {
    ASSERT_EQ(rig->outcome.kind, TrainingOutcome::Kind::kPaused) << rig->outcome.status;
    EXPECT_EQ(
        std::vector<float>(rig->replica->parameters().begin(), rig->replica->parameters().end()),
        masters);
  }
}

TEST_F(TrainerTest, HalfPrecisionLearnsAsWell) {
  spec_.training.steps = 250;
  spec_.training.evaluate_every = 200;
  auto full = MakeRigs(2);
  Train(full, 1, 1);
  spec_.training.precision = DType::kBF16;
  spec_.communication.gradients = DType::kBF16;
  auto half = MakeRigs(2);
  Train(half, 1, 1);
  ASSERT_EQ(half[0]->control.evaluations.size(), 1u);
  EXPECT_NEAR(half[0]->control.evaluations[0].test_accuracy,
              full[0]->control.evaluations[0].test_accuracy, 0.05);
  EXPECT_NE(Hash(*half[0]), Hash(*full[0]));
}

}  // namespace
}  // namespace muster
