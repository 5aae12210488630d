#include "worker/runtime/trainer.h"

#include <cmath>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "collectives/transport/in_process_transport.h"
#include "gtest/gtest.h"
#include "tests/base/temporary_directory.h"
#include "tests/worker/runtime/small_job.h"
#include "worker/checkpoint/training_state.h"
#include "worker/device/registry.h"

namespace muster {
namespace {

// Says yes to everything and remembers what it saw.
class Recorder : public TrainingControl {
 public:
  bool StopRequested() override { return stop_before == next_step; }
  std::optional<bool> OnPrepared(Step step) override {
    if (step == refuse_prepared) return std::nullopt;
    return step == pause_at;
  }
  bool OnRecord(const CommitRecord& record) override { return record.step != refuse_record; }
  void OnApplied(const CommitRecord& record, const StateTag& tag) override {
    EXPECT_EQ(tag.step, record.step);
    records.push_back(record);
    next_step = record.step + 1;
  }
  void OnStep(const StepMetrics& metrics, int64_t, int64_t) override {
    losses.push_back(metrics.loss);
  }
  void OnEvaluation(const EvaluationMetrics& metrics) override { evaluations.push_back(metrics); }

  Step stop_before = -1, refuse_prepared = -1, refuse_record = -1, pause_at = -1;
  Step next_step = 1;
  std::vector<CommitRecord> records;
  std::vector<double> losses;
  std::vector<EvaluationMetrics> evaluations;
};

// One worker, without sessions or processes.
struct Rig {
  Rig(const JobSpec& spec, FileSystem& files) {
    device = CreateDevice("cpu", {}).value();
    job = JobContext::Create("job", spec, files, *device).value();
    replica = std::make_unique<Replica>(job->layout(), job->rule(), job->learning_rate(),
                                        spec.training.clip_norm);
    replica->Initialize(spec.training.seed, StateTag{});
    trainer = std::make_unique<Trainer>(*job, *replica, meter);
  }
  std::unique_ptr<Device> device;
  std::unique_ptr<JobContext> job;
  std::unique_ptr<Replica> replica;
  StepMeter meter;
  std::unique_ptr<Trainer> trainer;
  Recorder control;
  TrainingOutcome outcome;
};

View ViewOf(int ranks, Epoch epoch) {
  View view;
  view.epoch = epoch;
  view.job = "job";
  view.members.resize(ranks);
  return view;
}

class TrainerTest : public testing::Test {
 protected:
  TrainerTest() : spec_(SmallJob(files_, directory_.path())) {}

  std::vector<std::unique_ptr<Rig>> MakeRigs(int ranks) {
    std::vector<std::unique_ptr<Rig>> rigs;
    for (int rank = 0; rank < ranks; ++rank) rigs.push_back(std::make_unique<Rig>(spec_, files_));
    return rigs;
  }

  // Every rig takes steps from `first` in one mesh.
  static void Train(std::vector<std::unique_ptr<Rig>>& rigs, Step first, Epoch epoch) {
    const int ranks = static_cast<int>(rigs.size());
    auto mesh = MakeInProcessMesh(ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        auto communicator = Communicator::Create(std::move(mesh[rank]));
        ASSERT_TRUE(communicator.ok());
        Rig& rig = *rigs[rank];
        rig.outcome = rig.trainer->Run(ViewOf(ranks, epoch), **communicator, first, rig.control);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  static std::string Hash(const Rig& rig) {
    return ParametersSha256(rig.job->layout(), rig.replica->parameters());
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
  rigs[2]->replica->Apply(record, rigs[2]->replica->gradients());
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
