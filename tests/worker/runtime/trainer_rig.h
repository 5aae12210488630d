// Workers that take steps together without sessions or processes: for tests of the step loop.
#ifndef MUSTER_TESTS_WORKER_RUNTIME_TRAINER_RIG_H_
#define MUSTER_TESTS_WORKER_RUNTIME_TRAINER_RIG_H_

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/transport/in_process_transport.h"
#include "gtest/gtest.h"
#include "worker/checkpoint/training_state.h"
#include "worker/device/registry.h"
#include "worker/runtime/trainer.h"

namespace muster {

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
  // `samples`: false of a parameter server.
  Rig(const JobSpec& spec, FileSystem& files, bool samples = true) {
    device = CreateDevice("cpu", {}).value();
    job = JobContext::Create("job", spec, files, *device, samples).value();
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

inline View ViewOf(int ranks, Epoch epoch) {
  View view;
  view.epoch = epoch;
  view.job = "job";
  view.members.resize(ranks);
  return view;
}

inline std::vector<std::unique_ptr<Rig>> MakeRigs(const JobSpec& spec, FileSystem& files,
                                                  int ranks) {
  std::vector<std::unique_ptr<Rig>> rigs;
  for (int rank = 0; rank < ranks; ++rank) rigs.push_back(std::make_unique<Rig>(spec, files));
  return rigs;
}

// Every rig takes steps from `first` in one mesh.
inline void Train(std::vector<std::unique_ptr<Rig>>& rigs, Step first, Epoch epoch) {
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

inline std::string Hash(const Rig& rig) {
  return ParametersSha256(rig.job->layout(), rig.replica->parameters());
}

}  // namespace muster

#endif  // MUSTER_TESTS_WORKER_RUNTIME_TRAINER_RIG_H_
