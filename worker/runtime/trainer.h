// The step loop: compute gradients, reduce them, commit, apply.
//
// The loop decides nothing about membership. It asks TrainingControl before it applies a step, and
// ends when a record says pause, when the mesh fails, or when the job can't go on. One thread at a
// time.
#ifndef MUSTER_WORKER_RUNTIME_TRAINER_H_
#define MUSTER_WORKER_RUNTIME_TRAINER_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/control/messages.h"
#include "collectives/engine/communicator.h"
#include "worker/metrics/step_metrics.h"
#include "worker/runtime/job_context.h"
#include "worker/runtime/replica.h"
#include "worker/runtime/step_memory.h"
#include "worker/runtime/step_meter.h"

namespace muster {

// What the loop asks and tells. Called on the training thread.
class TrainingControl {
 public:
  virtual ~TrainingControl() = default;
  // The loop should end before its next step: the view is being left.
  virtual bool StopRequested() = 0;
  // The reduced gradient of `step` is in memory. Only if a value comes back may this member go into
  // the small all-reduce; the value is its pause flag.
  virtual std::optional<bool> OnPrepared(Step step) = 0;
  // The record of a step is held. Only if it returns true may the step be applied.
  virtual bool OnRecord(const CommitRecord& record) = 0;
  // The step is applied; the replica can be copied in this state until the call returns.
  virtual void OnApplied(const CommitRecord& record, const StateTag& tag) = 0;
  virtual void OnStep(const StepMetrics& metrics, int64_t correct, int64_t samples) = 0;
  virtual void OnEvaluation(const EvaluationMetrics& metrics) = 0;
};

struct TrainingOutcome {
  enum class Kind : uint8_t {
    kPaused,      // a record said pause (the last step's always does)
    kStopped,     // StopRequested, or OnPrepared or OnRecord refused
    kMeshFailed,  // `status` and `culprit` say what broke
    kJobFailed,   // `status` says why no worker can go on
  };
  Kind kind = Kind::kStopped;
  absl::Status status;
  std::optional<Rank> culprit;
};

struct FinalMeasures {
  std::optional<EvaluationMetrics> evaluation;  // if there is a test set
  std::string parameters_sha256;                // training_state.h's ParametersSha256
};

class Trainer {
 public:
  // All must outlive the object.
  Trainer(JobContext& job, Replica& replica, StepMeter& meter);

  // Steps first, first + 1, ... of `view` until something ends it. When it returns, nothing touches
  // the replica's gradients any more.
  TrainingOutcome Run(const View& view, Communicator& communicator, Step first,
                      TrainingControl& control);

  // Of the state after `step`, the job's last, without ever having more of it here than a step
  // does: parameters are gathered once. All ranks of the view call it, and get the same, but for
  // parameter servers: no hash.
  absl::StatusOr<FinalMeasures> MeasureFinal(const View& view, Communicator& communicator,
                                             Step step, std::optional<Rank>* culprit);

 private:
  struct Computed {
    double loss_sum = 0;
    int64_t correct = 0;
    int64_t samples = 0;
  };
  // Adds up this rank's micro-batches of the step and starts the reduction of each block as soon as
  // its gradient is complete.
  absl::StatusOr<Computed> ComputeGradients(const Communicator& communicator, const View& view,
                                            Step step, StepMemory& memory);
  // Loss and accuracy on the test set, spread over the ranks; the same numbers on each. `visit`
  // sees the parameters of each block once, from block 0 on. Requires a test set.
  using BlockVisitor = absl::FunctionRef<void(int block, const float* parameters)>;
  absl::StatusOr<EvaluationMetrics> Evaluate(const Communicator& communicator, const View& view,
                                             StepMemory& memory, Step step, BlockVisitor visit);
  // Completes what this rank contributes to the commit by what a layer-wise rule needs.
  absl::Status SumTensors(Step step, StepMemory& memory, CommitContribution& contribution);
  // Makes the replica's memory fit the view.
  absl::Status Equip(const View& view, const Communicator& communicator);
  GradientExchangeOptions ExchangeOptions(const View& view) const;
  absl::Status CheckFinite(const CommitRecord& record) const;
  bool SwitchesAfter(Step step, const Strategy& strategy) const;

  JobContext& job_;
  Replica& replica_;
  StepMeter& meter_;
  std::vector<float> inputs_;
  std::vector<int32_t> labels_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_TRAINER_H_
