#include "worker/runtime/trainer.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "state/clip_norm.h"
#include "worker/runtime/connect_mesh.h"

namespace muster {
namespace {

constexpr int64_t kEvaluationBatch = 250;

TrainingOutcome MeshFailed(Communicator& communicator, absl::Status status,
                           std::optional<Rank> culprit) {
  // Abort returns once nothing touches the gradients any more.
  communicator.Abort(status, culprit);
  return {TrainingOutcome::Kind::kMeshFailed, std::move(status), culprit};
}

}  // namespace

Trainer::Trainer(JobContext& job, Replica& replica, StepMeter& meter)
    : job_(job), replica_(replica), meter_(meter) {}

GradientExchangeOptions Trainer::ExchangeOptions() const {
  const CommunicationSpec& spec = job_.spec().communication;
  GradientExchangeOptions options;
  options.timeout = absl::Milliseconds(spec.timeout_ms);
  options.algorithm = AlgorithmOf(spec);
  return options;
}

TrainingOutcome Trainer::Run(const View& view, Communicator& communicator, Step first,
                             TrainingControl& control) {
  using Kind = TrainingOutcome::Kind;
  GradientExchange exchange(communicator, job_.layout(), ExchangeOptions());
  const int64_t evaluate_every = job_.test() != nullptr ? job_.spec().training.evaluate_every : 0;
  for (Step step = first; step <= job_.total_steps(); ++step) {
    if (control.StopRequested()) return {Kind::kStopped};
    const absl::Time start = absl::Now();

    absl::StatusOr<Computed> computed = ComputeGradients(communicator, step, exchange);
    if (!computed.ok()) {
      communicator.Abort(computed.status());
      return {Kind::kJobFailed, computed.status()};
    }
    absl::Status reduced = exchange.Finish();
    if (!reduced.ok()) return MeshFailed(communicator, std::move(reduced), exchange.culprit());
    const std::optional<bool> pause = control.OnPrepared(step);
    if (!pause.has_value()) return {Kind::kStopped};

    CommitContribution contribution{.loss_sum = computed->loss_sum,
                                    .samples = computed->samples,
                                    .correct = computed->correct,
                                    .pause = *pause || step == job_.total_steps()};
    const Range range = exchange.NormRange();
    AddTrainedSquares(job_.layout(), range, replica_.gradients().subspan(range.offset, range.count),
                      contribution.squared_gradient);
    absl::StatusOr<CommitRecord> record = exchange.Commit(step, view.epoch, contribution);
    if (!record.ok()) return MeshFailed(communicator, record.status(), exchange.culprit());
    if (record->samples != job_.plan().samples_per_step()) {
      // Never in a sound view: a sample would be skipped or seen twice.
      return MeshFailed(communicator,
                        absl::InternalError(absl::StrCat(
                            "step ", step, " covers ", record->samples, " samples instead of ",
                            job_.plan().samples_per_step(), "; the members' views differ")),
                        std::nullopt);
    }
    if (!control.OnRecord(*record)) return {Kind::kStopped};

    replica_.Apply(*record, replica_.gradients());
    control.OnApplied(*record, replica_.counters().tag);

    const absl::Duration elapsed = absl::Now() - start;
    const absl::Duration waited = exchange.TakeWaited();
    meter_.Record(elapsed, waited, record->samples);
    control.OnStep({.step = step,
                    .loss = record->loss_sum / static_cast<double>(record->samples),
                    .learning_rate = replica_.LearningRateOf(step),
                    .gradient_norm = record->gradient_norm,
                    .update_skipped = !record->finite,
                    .step_time_ms = absl::ToDoubleMilliseconds(elapsed),
                    .samples_per_s = meter_.samples_per_second(),
                    .comm_wait_share = absl::FDivDuration(waited, elapsed),
                    .data_epochs = job_.plan().DataEpochsAfter(step),
                    .epoch = view.epoch,
                    .world_size = communicator.world_size()},
                   record->correct, record->samples);
    if (absl::Status status = CheckFinite(*record); !status.ok()) {
      return {Kind::kJobFailed, std::move(status)};
    }
    if (record->pause) return {Kind::kPaused};
    if (evaluate_every > 0 && step % evaluate_every == 0) {
      absl::StatusOr<EvaluationMetrics> evaluation = Evaluate(communicator, exchange, step);
      exchange.TakeWaited();
      if (!evaluation.ok()) {
        return MeshFailed(communicator, evaluation.status(), exchange.culprit());
      }
      control.OnEvaluation(*evaluation);
    }
  }
  return {Kind::kPaused};
}

absl::StatusOr<Trainer::Computed> Trainer::ComputeGradients(const Communicator& communicator,
                                                            Step step, GradientExchange& exchange) {
  const BatchPlan& plan = job_.plan();
  const int blocks = job_.layout().block_count();
  const absl::Span<float> gradients = replica_.gradients();
  std::fill(gradients.begin(), gradients.end(), 0.0f);
  const MicroBatchRange mine = plan.MicroBatchesOf(communicator.rank(), communicator.world_size());
  if (mine.count() == 0) {
    // More ranks than micro-batches: this one contributes zeros.
    for (int block = blocks - 1; block >= 0; --block) exchange.Start(step, block, gradients);
    return Computed{};
  }
  Computed sum;
  inputs_.resize(plan.micro_batch_size * job_.train().feature_count());
  labels_.resize(plan.micro_batch_size);
  for (int32_t micro_batch = mine.first; micro_batch < mine.last; ++micro_batch) {
    job_.train().Gather(plan.SamplesOf(step, micro_batch), absl::MakeSpan(inputs_),
                        absl::MakeSpan(labels_));
    const bool last = micro_batch + 1 == mine.last;
    const auto on_block_done = [&](int block) {
      if (last) exchange.Start(step, block, gradients);
      return absl::OkStatus();
    };
    MUSTER_ASSIGN_OR_RETURN(const BatchResult result,
                            job_.model().ForwardBackward(replica_.parameters(), inputs_, labels_,
                                                         gradients, on_block_done));
    sum.loss_sum += result.loss_sum;
    sum.correct += result.correct;
    sum.samples += result.samples;
  }
  return sum;
}

absl::Status Trainer::CheckFinite(const CommitRecord& record) const {
  const int64_t in_row = replica_.counters().nonfinite_in_row;
  const int32_t limit = job_.spec().training.max_nonfinite_steps;
  if (in_row < limit) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(
      "loss or gradient was not finite in ", in_row, " steps in a row, the last being step ",
      record.step, " (training.max_nonfinite_steps is ", limit,
      "): lower training.learning_rate.peak, set training.clip_norm, or check the data"));
}

absl::StatusOr<EvaluationMetrics> Trainer::Evaluate(Communicator& communicator, Step step,
                                                    std::optional<Rank>* culprit) {
  GradientExchange exchange(communicator, job_.layout(), ExchangeOptions());
  absl::StatusOr<EvaluationMetrics> metrics = Evaluate(communicator, exchange, step);
  if (!metrics.ok()) {
    communicator.Abort(metrics.status(), exchange.culprit());
    *culprit = exchange.culprit();
  }
  return metrics;
}

absl::StatusOr<EvaluationMetrics> Trainer::Evaluate(const Communicator& communicator,
                                                    GradientExchange& exchange, Step step) {
  const Dataset& test = *job_.test();
  const Chunk mine = ChunkOf(test.size(), communicator.world_size(), communicator.rank());
  GradientExchange::Evaluation sum;
  for (int64_t done = 0; done < mine.count; done += kEvaluationBatch) {
    const int64_t count = std::min(kEvaluationBatch, mine.count - done);
    std::vector<int64_t> ids(count);
    std::iota(ids.begin(), ids.end(), mine.offset + done);
    inputs_.resize(count * test.feature_count());
    labels_.resize(count);
    test.Gather(ids, absl::MakeSpan(inputs_), absl::MakeSpan(labels_));
    MUSTER_ASSIGN_OR_RETURN(const BatchResult result,
                            job_.model().Evaluate(replica_.parameters(), inputs_, labels_));
    sum.loss_sum += result.loss_sum;
    sum.correct += result.correct;
    sum.samples += result.samples;
  }
  MUSTER_ASSIGN_OR_RETURN(sum, exchange.SumEvaluation(step, sum));
  return EvaluationMetrics{
      .step = step,
      .test_loss = sum.loss_sum / static_cast<double>(sum.samples),
      .test_accuracy = static_cast<double>(sum.correct) / static_cast<double>(sum.samples)};
}

}  // namespace muster
