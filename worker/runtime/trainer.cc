#include "worker/runtime/trainer.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "worker/checkpoint/training_state.h"
#include "worker/compression/gradient_codec.h"
#include "worker/runtime/connect_mesh.h"
#include "worker/runtime/master_blocks.h"

namespace muster {
namespace {

constexpr int64_t kEvaluationBatch = 250;

TrainingOutcome MeshFailed(Communicator& communicator, absl::Status status,
                           std::optional<Rank> culprit) {
  // Abort returns once nothing touches the gradients any more.
  communicator.Abort(status, culprit);
  return {TrainingOutcome::Kind::kMeshFailed, std::move(status), culprit};
}

std::optional<Rank> CulpritOf(const Communicator& communicator) {
  const std::optional<MeshFailure> failure = communicator.failure();
  return failure.has_value() ? failure->culprit : std::nullopt;
}

// Shows the parameters of each block that a forward pass asks for.
class VisitedBlocks final : public BlockMemory {
 public:
  VisitedBlocks(BlockMemory& memory, absl::FunctionRef<void(int, const float*)> visit)
      : memory_(memory), visit_(visit) {}

  absl::StatusOr<BlockParameters> Acquire(int block) override {
    MUSTER_ASSIGN_OR_RETURN(BlockParameters parameters, memory_.Acquire(block));
    visit_(block, parameters.own);
    return parameters;
  }
  void Release(int block) override { memory_.Release(block); }
  absl::StatusOr<float*> Gradients(int block) override { return memory_.Gradients(block); }
  absl::Status GradientsReady(int block) override { return memory_.GradientsReady(block); }

 private:
  BlockMemory& memory_;
  const absl::FunctionRef<void(int, const float*)> visit_;
};

}  // namespace

Trainer::Trainer(JobContext& job, Replica& replica, StepMeter& meter)
    : job_(job), replica_(replica), meter_(meter) {}

GradientExchangeOptions Trainer::ExchangeOptions(const View& view) const {
  GradientExchangeOptions options;
  options.timeout = absl::Milliseconds(job_.spec().communication.timeout_ms);
  options.dtype = job_.spec().communication.gradients;
  options.compression = job_.spec().communication.compression;
  options.algorithm = AlgorithmOf(CommunicationIn(view, job_.spec()));
  return options;
}

TrainingOutcome Trainer::Run(const View& view, Communicator& communicator, Step first,
                             TrainingControl& control) {
  using Kind = TrainingOutcome::Kind;
  if (absl::Status equipped = Equip(view, communicator); !equipped.ok()) {
    communicator.Abort(equipped);
    return {Kind::kJobFailed, std::move(equipped)};
  }
  const GradientExchangeOptions options = ExchangeOptions(view);
  const absl::StatusOr<ShardMesh> mesh = ShardMesh::Connect(communicator, view, options.timeout);
  if (!mesh.ok()) return MeshFailed(communicator, mesh.status(), CulpritOf(communicator));
  StepMemory memory(replica_, *mesh, view, options);
  const int64_t evaluate_every = job_.has_test() ? job_.spec().training.evaluate_every : 0;
  for (Step step = first; step <= job_.total_steps(); ++step) {
    if (control.StopRequested()) return {Kind::kStopped};
    const absl::Time start = absl::Now();

    memory.BeginStep(step);
    absl::StatusOr<Computed> computed = ComputeGradients(communicator, view, step, memory);
    if (computed.ok()) memory.FinishGradients().IgnoreError();  // mesh_status says it
    if (!memory.mesh_status().ok()) {
      return MeshFailed(communicator, memory.mesh_status(), memory.culprit());
    }
    if (!computed.ok()) {
      communicator.Abort(computed.status());
      return {Kind::kJobFailed, computed.status()};
    }
    const std::optional<bool> pause = control.OnPrepared(step);
    if (!pause.has_value()) return {Kind::kStopped};

    CommitContribution contribution{
        .loss_sum = computed->loss_sum,
        .samples = computed->samples,
        .correct = computed->correct,
        .pause = *pause || step == job_.total_steps() || SwitchesAfter(step, view.strategy)};
    for (const Range& range : memory.exchange().NormRanges()) {
      replica_.buffers().AddReducedSquares(range, contribution.squared_gradient);
    }
    if (absl::Status status = SumTensors(step, memory, contribution); !status.ok()) {
      return MeshFailed(communicator, std::move(status), memory.culprit());
    }
    absl::StatusOr<CommitRecord> record = memory.exchange().Commit(step, view.epoch, contribution);
    if (!record.ok()) return MeshFailed(communicator, record.status(), memory.culprit());
    if (record->samples != job_.plan().samples_per_step()) {
      // Never in a sound view: a sample would be skipped or seen twice.
      return MeshFailed(communicator,
                        absl::InternalError(absl::StrCat(
                            "step ", step, " covers ", record->samples, " samples instead of ",
                            job_.plan().samples_per_step(), "; the members' views differ")),
                        std::nullopt);
    }
    if (!control.OnRecord(*record)) return {Kind::kStopped};

    replica_.Apply(*record);
    control.OnApplied(*record, replica_.counters().tag);

    const absl::Duration elapsed = absl::Now() - start;
    const absl::Duration waited = memory.TakeWaited();
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
      absl::StatusOr<EvaluationMetrics> evaluation =
          Evaluate(communicator, view, memory, step, [](int, const float*) {});
      memory.TakeWaited();
      if (!evaluation.ok()) {
        return MeshFailed(communicator, evaluation.status(), memory.culprit());
      }
      control.OnEvaluation(*evaluation);
    }
  }
  return {Kind::kPaused};
}

// What the update of whole tensors depends on has to be in the record, since apply asks nobody
// (docs/protocol.md, rule 7). Where gradients are clipped the update depends on the whole norm,
// which is summed first; otherwise its sums travel with the commit.
absl::Status Trainer::SumTensors(Step step, StepMemory& memory, CommitContribution& contribution) {
  contribution.tensor_sums = TensorSums(job_.rule().factor_count());
  if (job_.rule().factor_count() == 0) return absl::OkStatus();
  const int64_t samples = job_.plan().samples_per_step();
  double gradient_norm = 0;
  if (job_.spec().training.clip_norm > 0) {
    MUSTER_ASSIGN_OR_RETURN(const SquaredSum whole,
                            memory.exchange().SumSquares(step, contribution.squared_gradient));
    if (!whole.finite()) return absl::OkStatus();  // on every rank: there will be no update
    gradient_norm = MeanGradientNorm(whole, samples);
  }
  contribution.tensor_sums =
      replica_.PrepareUpdate(step, gradient_norm, samples, memory.exchange().NormRanges());
  return absl::OkStatus();
}

absl::Status Trainer::Equip(const View& view, const Communicator& communicator) {
  const bool computes = communicator.rank() < view.workers();
  const bool several = job_.plan().micro_batches_per_step > view.workers();
  return replica_.Equip({.stage = view.strategy.sharded_stage(),
                         .accumulates = computes && several,
                         .computes = computes,
                         .parameters = job_.spec().training.precision,
                         .gradients = job_.spec().communication.gradients,
                         .carries = Carries(job_.spec().communication.compression)});
}

absl::StatusOr<Trainer::Computed> Trainer::ComputeGradients(const Communicator& communicator,
                                                            const View& view, Step step,
                                                            StepMemory& memory) {
  const BatchPlan& plan = job_.plan();
  replica_.buffers().ClearGradients();
  const int size = view.workers();
  MicroBatchRange mine;  // none of a parameter server
  if (communicator.rank() < size) mine = plan.MicroBatchesOf(communicator.rank(), size);
  // Where blocks are gathered for each pass, all ranks take as many as the one with the most. Who
  // has no micro-batch contributes zeros.
  const int32_t most = (plan.micro_batches_per_step + size - 1) / size;
  const int32_t passes = view.strategy.stage == 3 ? most : std::max(1, mine.count());
  Computed sum;
  for (int32_t pass = 0; pass < passes; ++pass) {
    memory.BeginPass(/*reduces=*/pass + 1 == passes);
    if (pass >= mine.count()) {
      MUSTER_RETURN_IF_ERROR(memory.DryPass());
      continue;
    }
    inputs_.resize(plan.micro_batch_size * job_.train().feature_count());
    labels_.resize(plan.micro_batch_size);
    job_.train().Gather(plan.SamplesOf(step, mine.first + pass), absl::MakeSpan(inputs_),
                        absl::MakeSpan(labels_));
    MUSTER_ASSIGN_OR_RETURN(const BatchResult result,
                            job_.model().ForwardBackward(memory, inputs_, labels_));
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

// Whether the job asks for another strategy after this step.
bool Trainer::SwitchesAfter(Step step, const Strategy& strategy) const {
  for (const StrategySwitch& change : job_.spec().switches) {
    if (change.after == step) return change.strategy != strategy;
  }
  return false;
}

absl::StatusOr<FinalMeasures> Trainer::MeasureFinal(const View& view, Communicator& communicator,
                                                    Step step, std::optional<Rank>* culprit) {
  MUSTER_RETURN_IF_ERROR(Equip(view, communicator));
  const GradientExchangeOptions options = ExchangeOptions(view);
  const absl::StatusOr<ShardMesh> mesh = ShardMesh::Connect(communicator, view, options.timeout);
  if (!mesh.ok()) {
    *culprit = CulpritOf(communicator);
    communicator.Abort(mesh.status(), *culprit);
    return mesh.status();
  }
  StepMemory memory(replica_, *mesh, view, options);
  const bool computes = replica_.buffers().shape().computes;
  ParametersHash hash(job_.layout());
  const auto add = [&](int block, const float* parameters) { hash.AddBlock(block, parameters); };
  // What passes see is the state itself, unless it is rounded for them.
  const bool rounded = replica_.buffers().rounds_parameters();
  const auto see = [&](int block, const float* parameters) {
    if (computes && !rounded) add(block, parameters);
  };
  FinalMeasures measures;
  const auto measure = [&]() -> absl::Status {
    if (job_.has_test()) {
      MUSTER_ASSIGN_OR_RETURN(measures.evaluation, Evaluate(communicator, view, memory, step, see));
    } else if (!rounded) {
      memory.BeginStep(step);
      memory.BeginForward();
      return memory.DryForward(see);
    }
    return absl::OkStatus();
  };
  absl::Status status = measure();
  *culprit = memory.culprit();
  if (status.ok() && rounded) {
    status = VisitMasterBlocks(view, *mesh, replica_, step, options.timeout, culprit, add);
  }
  if (!status.ok()) {
    communicator.Abort(status, *culprit);
    return status;
  }
  if (computes) measures.parameters_sha256 = hash.HexDigest();
  return measures;
}

absl::StatusOr<EvaluationMetrics> Trainer::Evaluate(const Communicator& communicator,
                                                    const View& view, StepMemory& memory, Step step,
                                                    BlockVisitor visit) {
  const int size = view.workers();
  Chunk mine;  // nothing of a parameter server
  if (communicator.rank() < size) mine = ChunkOf(job_.test().size(), size, communicator.rank());
  const auto passes_over = [](int64_t count) {
    return (count + kEvaluationBatch - 1) / kEvaluationBatch;
  };
  // As in training: rank 0 has the most samples.
  const int64_t passes = view.strategy.stage == 3
                             ? passes_over(ChunkOf(job_.test().size(), size, 0).count)
                             : std::max<int64_t>(1, passes_over(mine.count));
  GradientExchange::Evaluation sum;
  VisitedBlocks visited(memory, visit);
  memory.BeginStep(step);
  for (int64_t pass = 0; pass < passes; ++pass) {
    BlockMemory& blocks = pass == 0 ? static_cast<BlockMemory&>(visited) : memory;
    memory.BeginForward();
    const int64_t done = pass * kEvaluationBatch;
    const int64_t count = std::min(kEvaluationBatch, mine.count - done);
    if (count <= 0) {
      MUSTER_RETURN_IF_ERROR(memory.DryForward([&](int block, const float* parameters) {
        if (pass == 0) visit(block, parameters);
      }));
      continue;
    }
    const Dataset& test = job_.test();
    std::vector<int64_t> ids(count);
    std::iota(ids.begin(), ids.end(), mine.offset + done);
    inputs_.resize(count * test.feature_count());
    labels_.resize(count);
    test.Gather(ids, absl::MakeSpan(inputs_), absl::MakeSpan(labels_));
    MUSTER_ASSIGN_OR_RETURN(const BatchResult result,
                            job_.model().Evaluate(blocks, inputs_, labels_));
    sum.loss_sum += result.loss_sum;
    sum.correct += result.correct;
    sum.samples += result.samples;
  }
  MUSTER_ASSIGN_OR_RETURN(sum, memory.exchange().SumEvaluation(step, sum));
  return EvaluationMetrics{
      .step = step,
      .test_loss = sum.loss_sum / static_cast<double>(sum.samples),
      .test_accuracy = static_cast<double>(sum.correct) / static_cast<double>(sum.samples)};
}

}  // namespace muster
