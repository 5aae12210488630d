#include "worker/runtime/trainer.h"

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

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

TEST_F(TrainerTest, NonfiniteLossSkipsTheUpdateOnAllRanksAndThenEndsTheJob) {
  spec_.training.optimizer.rule = SgdSpec{};
  spec_.training.optimizer.weight_decay = 0;
  spec_.training.learning_rate = {.peak = 1e30};
  spec_.training.max_nonfinite_steps = 3;
  auto rigs = MakeRigs(2);
  Train(rigs, 1, 1);
  for (const auto& rig : rigs) {
    EXPECT_EQ(rig->outcome.kind, TrainingOutcome::Kind::kJobFailed);
    EXPECT_THAT(std::string(rig->outcome.status.message()), testing::HasSubstr("3 steps in a row"));
    EXPECT_EQ(rig->replica->counters().nonfinite_in_row, 3);
    EXPECT_EQ(Hash(*rig), Hash(*rigs[0]));
  }
}

}  // namespace
}  // namespace muster
