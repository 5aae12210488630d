// The part of JobRunner that takes steps and does a job's final work.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "worker/runtime/job_runner.h"

namespace muster {
namespace {

// Progress goes to the core at most this often while steps are short.
constexpr absl::Duration kProgressInterval = absl::Milliseconds(100);

}  // namespace

// Stands between the step loop and the core during one view.
class JobRunner::Control : public TrainingControl {
 public:
  Control(JobRunner& runner, const View& view, const Communicator& communicator,
          std::shared_ptr<Checkpointer> checkpointer)
      : runner_(runner),
        view_(view),
        communicator_(communicator),
        rank_(communicator.rank()),
        checkpointer_(std::move(checkpointer)) {}

  bool StopRequested() override { return view_.epoch < runner_.stopped_below(); }

  std::optional<bool> OnPrepared(Step step) override {
    const CorePort::Doors doors = runner_.core_.Dispatch(worker::StepPrepared{view_.epoch, step});
    if (!doors.contribute.has_value()) return std::nullopt;
    return doors.contribute->pause;
  }

  bool OnRecord(const CommitRecord& record) override {
    if (!runner_.core_.Dispatch(worker::RecordFormed{view_.epoch, record}).apply.has_value()) {
      return false;
    }
    // The record of a step makes the state before it stable: learners may apply it.
    runner_.source_.SetStable(runner_.replica_->counters().tag);
    return true;
  }

  void OnApplied(const CommitRecord& record, const StateTag& tag) override {
    runner_.logger_.SetContext(rank_, view_.epoch, tag.step);
    const CheckpointsSpec& spec = runner_.context_->spec().checkpoints;
    // The last step's checkpoint belongs to the final work.
    if (checkpointer_ != nullptr && spec.every > 0 && tag.step % spec.every == 0 &&
        tag.step < runner_.context_->total_steps()) {
      SaveCheckpoint(tag.step);
    }
    runner_.core_.Dispatch(worker::StepApplied{view_.epoch, tag});
  }

  void OnStep(const StepMetrics& metrics, int64_t, int64_t) override {
    runner_.metrics_->Record(metrics, rank_);
    if (metrics.update_skipped) {
      runner_.logger_.Warning("step_skipped", "loss or gradient is not finite; no update made",
                              {{"skipped_step", metrics.step}});
    }
    Progress& progress = runner_.progress_;
    progress.step = metrics.step;
    progress.loss = metrics.loss;
    progress.learning_rate = metrics.learning_rate;
    progress.gradient_norm = metrics.gradient_norm;
    const absl::Time now = absl::Now();
    if (now - published_at_ < kProgressInterval &&
        metrics.step != runner_.context_->total_steps()) {
      return;
    }
    published_at_ = now;
    runner_.PublishProgress();
    runner_.PublishPath(communicator_);
  }

  void OnEvaluation(const EvaluationMetrics& metrics) override {
    runner_.metrics_->Record(metrics, rank_);
    runner_.progress_.test_accuracy = metrics.test_accuracy;
    runner_.progress_.test_loss = metrics.test_loss;
    if (rank_ == 0) {
      runner_.logger_.Info(
          "evaluation", "evaluated on the test set",
          {{"test_loss", metrics.test_loss}, {"test_accuracy", metrics.test_accuracy}});
    }
    runner_.PublishProgress();
  }

 private:
  // All members write their parts, or none does. A mesh that fails the next step finds out about.
  void SaveCheckpoint(Step step) {
    const std::shared_ptr<Communicator> communicator = runner_.MeshOf(view_.epoch);
    if (communicator == nullptr) return;
    const auto skip = [&](absl::string_view why) {
      runner_.logger_.Warning("checkpoint_skipped", why, {{"checkpoint_step", step}});
    };
    CollectiveOptions options;
    options.timeout = absl::Milliseconds(runner_.context_->spec().communication.timeout_ms);
    options.label = "checkpoint";
    options.step = step;
    options.caller_waits = true;
    int64_t busy = checkpointer_->busy() ? 1 : 0;
    Work sum = communicator->AllReduce(&busy, &busy, 1, DType::kI64, ReduceOp::kSum, options);
    if (absl::Status status = sum.Wait(); !status.ok()) return skip(status.message());
    if (busy > 0) {
      if (rank_ == 0) {
        skip(absl::StrCat("the one before is still being written by ", busy,
                          " workers; raise checkpoints.every"));
      }
      return;
    }
    std::optional<Rank> culprit;
    auto part = CopyPartToSave(view_, *runner_.replica_, *communicator,
                               runner_.options_.move_timeout, &culprit);
    if (!part.ok()) return skip(part.status().message());
    if (part->has_value()) checkpointer_->Begin(**std::move(part));
  }

  JobRunner& runner_;
  const View& view_;
  const Communicator& communicator_;
  const Rank rank_;
  const std::shared_ptr<Checkpointer> checkpointer_;
  absl::Time published_at_ = absl::InfinitePast();
};

void JobRunner::PublishProgress() {
  progress_.samples_per_second = meter_->samples_per_second();
  progress_.comm_wait_share = meter_->wait_share();
  progress_.step_ms_p50 = meter_->PercentileMs(50);
  progress_.step_ms_p99 = meter_->PercentileMs(99);
  progress_.skipped_steps = replica_->counters().skipped_steps;
  waits_->SetMedianStep(absl::Milliseconds(progress_.step_ms_p50), meter_->count());
  core_.Dispatch(worker::ProgressMeasured{progress_});
}

void JobRunner::DoRunSteps(const View& view, Step first_step) {
  std::shared_ptr<Communicator> communicator;
  std::shared_ptr<Checkpointer> checkpointer;
  {
    MutexLock lock(&mutex_);
    if (communicator_epoch_ != view.epoch || communicator_ == nullptr) return;
    communicator = communicator_;
    checkpointer = checkpointer_;
  }
  logger_.SetContext(communicator->rank(), view.epoch, first_step - 1);
  logger_.Info("view_active", "taking steps",
               {{"world_size", communicator->world_size()}, {"first_step", first_step}});
  NoteContributors(view);
  Control control(*this, view, *communicator, std::move(checkpointer));
  const TrainingOutcome outcome = trainer_->Run(view, *communicator, first_step, control);
  switch (outcome.kind) {
    case TrainingOutcome::Kind::kPaused:
    case TrainingOutcome::Kind::kStopped:
      return;
    case TrainingOutcome::Kind::kMeshFailed:
      return ReportMeshFailure(view.epoch, outcome.status, outcome.culprit);
    case TrainingOutcome::Kind::kJobFailed:
      // Steps taken since the last report; not before the first one of this state is measured.
      if (progress_.step == replica_->counters().tag.step) PublishProgress();
      return Fail(outcome.status);
  }
}

void JobRunner::FinalWork(Epoch epoch, const StateTag& tag) {
  const std::shared_ptr<Communicator> communicator = MeshOf(epoch);
  if (communicator == nullptr || !view_.has_value()) return;
  const Rank rank = communicator->rank();
  std::optional<Rank> culprit;
  const auto mesh_failed = [&](const absl::Status& status) {
    communicator->Abort(status, culprit);
    ReportMeshFailure(epoch, status, culprit);
  };
  const absl::StatusOr<FinalMeasures> measures =
      trainer_->MeasureFinal(*view_, *communicator, tag.step, &culprit);
  if (!measures.ok()) return mesh_failed(measures.status());
  if (measures->evaluation.has_value()) {
    metrics_->Record(*measures->evaluation, rank);
    progress_.test_accuracy = measures->evaluation->test_accuracy;
    progress_.test_loss = measures->evaluation->test_loss;
  }
  FinalReport report;
  report.parameters_sha256 = measures->parameters_sha256;
  std::shared_ptr<Checkpointer> checkpointer;
  {
    MutexLock lock(&mutex_);
    checkpointer = checkpointer_;
  }
  if (checkpointer != nullptr) {
    const auto failed = [&](const absl::Status& status) {
      if (epoch >= stopped_below()) Fail(status);
    };
    // First, so that two copies are never here at once.
    if (absl::Status free = AwaitFree(epoch, *checkpointer); !free.ok()) return failed(free);
    auto part = CopyPartToSave(*view_, *replica_, *communicator, options_.move_timeout, &culprit);
    if (!part.ok()) return mesh_failed(part.status());
    if (part->has_value()) {
      const absl::StatusOr<std::string> checkpoint =
          FinalCheckpoint(epoch, *checkpointer, **std::move(part));
      if (!checkpoint.ok()) return failed(checkpoint.status());
      report.checkpoint = *checkpoint;
    }
  }
  if (epoch < stopped_below()) return;
  progress_.step = tag.step;
  PublishProgress();
  report.progress = progress_;
  core_.Dispatch(worker::FinalWorkDone{epoch, report});
}

}  // namespace muster
