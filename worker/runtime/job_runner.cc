#include "worker/runtime/job_runner.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/compression/gradient_codec.h"
#include "worker/runtime/available_memory.h"
#include "worker/runtime/job_memory.h"

namespace muster {
JobRunner::JobRunner(const JobRunnerOptions& options, CorePort& core, TcpListener& listener,
                     Device& device, FileSystem& files, ReplicaStateSource& source, Logger& logger)
    : options_(options),
      core_(core),
      listener_(listener),
      device_(device),
      files_(files),
      source_(source),
      logger_(logger),
      tuner_(options.model_cache, files, logger),
      thread_([this] { Run(); }) {}

JobRunner::~JobRunner() {
  StopMesh(highest_epoch_ + 1, absl::OkStatus());
  Add({.run = [this] { DropState(); }, .drops_job = true});
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
}

void JobRunner::SetIdentity(Incarnation self, const std::string& fleet_id) {
  MutexLock lock(&mutex_);
  self_ = self;
  fleet_id_ = fleet_id;
}

// ---- orders ----------------------------------------------------------------------------------

void JobRunner::Quiesce(const worker::Quiesce& order) {
  StopMesh(order.epoch, absl::CancelledError("the view is changing"));
  Add({.run = [this, order] {
    CloseMesh();
    if (learning_ != nullptr) learning_->Stop();
    // Data and model are made ready while the answers of others are on their way.
    if (!order.job.empty()) {
      const bool known = context_ != nullptr && context_->id() == order.job;
      if (!Prepare(order.job, order.spec)) return;
      // Before it answers for the first time. Who learns from others needs no checkpoint.
      if (!known && context_->spec().checkpoints.resume) OfferCheckpoint();
    }
    core_.Dispatch(worker::Quiesced{order.epoch});
    WriteOperations();  // now that nobody waits for it
  }});
}

void JobRunner::StartLearning(const worker::StartLearning& order) {
  highest_epoch_ = std::max(highest_epoch_, order.epoch);
  Add({.run = [this, order] {
    learning_.reset();
    if (!Prepare(order.job, order.spec)) return;
    source_.Withdraw();
    if (order.sharded) {
      core_.Dispatch(worker::LearnProgress{order.attempt, std::nullopt, std::nullopt,
                                           /*caught_up=*/true});
      return;
    }
    LearnRequest request;
    request.job = order.job;
    request.source = order.source.incarnation;
    request.layout_fingerprint = context_->layout().fingerprint();
    {
      MutexLock lock(&mutex_);
      request.fleet_id = fleet_id_;
      request.learner = self_;
    }
    logger_.Info("learning", "receiving the training state from a live worker",
                 {{"source", order.source.name}, {"address", order.source.rpc_address}});
    LearningObserver& observer = *this;
    learning_ = std::make_unique<Learning>(order.attempt, order.source.rpc_address, request,
                                           *replica_, observer);
  }});
}

void JobRunner::StopLearning() {
  Add({.run = [this] { learning_.reset(); }});
}

void JobRunner::LearnUpTo(const worker::LearnUpTo& order) {
  Add({.run = [this, order] {
    if (learning_ == nullptr) return;
    if (absl::Status status = learning_->LearnUpTo(order.tag); !status.ok()) {
      OnLearningFailed(order.attempt, status);
    }
  }});
}

void JobRunner::StartFresh(const worker::StartFresh& order) {
  highest_epoch_ = std::max(highest_epoch_, order.epoch);
  Add({.run = [this, order] {
    learning_.reset();
    if (!Prepare(order.job, order.spec)) return;
    source_.Withdraw();
    if (absl::Status status = MakeFresh(order); !status.ok()) return Fail(status);
    core_.Dispatch(worker::StateReady{order.epoch, replica_->counters().tag});
  }});
}

void JobRunner::RollForward(const worker::RollForward& order) {
  highest_epoch_ = std::max(highest_epoch_, order.epoch);
  Add({.run = [this, order] {
    MUSTER_CHECK(replica_ != nullptr) << "roll forward without state";
    if (absl::Status status = replica_->CheckRecord(order.record); !status.ok()) {
      return Fail(status);
    }
    replica_->Apply(order.record);
    const CommitRecord& record = order.record;
    metrics_->Remember({.step = record.step,
                        .loss = record.loss_sum / static_cast<double>(record.samples),
                        .learning_rate = replica_->LearningRateOf(record.step),
                        .gradient_norm = record.gradient_norm,
                        .update_skipped = !record.finite,
                        .data_epochs = context_->plan().DataEpochsAfter(record.step),
                        .epoch = record.epoch});
    logger_.Info("rolled_forward", "applied a step that others had committed",
                 {{"applied_step", order.record.step}});
    core_.Dispatch(worker::StateReady{order.epoch, replica_->counters().tag});
  }});
}

void JobRunner::ConnectMesh(const View& view) {
  highest_epoch_ = std::max(highest_epoch_, view.epoch);
  Add({.mesh_epoch = view.epoch, .run = [this, view] { DoConnect(view); }});
}

void JobRunner::RunSteps(const View& view, Step first_step) {
  Add({.mesh_epoch = view.epoch,
       .run = [this, view, first_step] { DoRunSteps(view, first_step); }});
}

void JobRunner::DoFinalWork(Epoch epoch, const StateTag& tag) {
  Add({.mesh_epoch = epoch, .run = [this, epoch, tag] { FinalWork(epoch, tag); }});
}

void JobRunner::SealAmongMembers(const worker::SealAmongMembers& order) {
  Add({.mesh_epoch = order.epoch, .run = [this, order] {
         const std::shared_ptr<Communicator> communicator = MeshOf(order.epoch);
         if (communicator == nullptr) return;
         logger_.Info("sealing",
                      "no coordinator; waiting for the other members to rest at this step");
         CollectiveOptions options;
         options.timeout = std::max(order.deadline - absl::Now(), absl::Milliseconds(1));
         options.caller_waits = true;
         // A failure is reported as that of any collective.
         if (!communicator->Barrier(options).Wait().ok()) return;
         if (view_.has_value() && view_->strategy.sharded()) {
           // While the mesh is there; what is kept is written when it is gone.
           std::optional<Rank> culprit;
           auto part =
               CopyPartToSave(*view_, *replica_, *communicator, options_.move_timeout, &culprit);
           if (!part.ok()) return;
           sealed_part_ = *std::move(part);
         }
         core_.Dispatch(worker::MembersSealed{order.epoch, order.tag});
       }});
}

void JobRunner::SetStable(const StateTag& stable) { source_.SetStable(stable); }

void JobRunner::Drop(const absl::Status& why, std::function<void()> then) {
  StopMesh(highest_epoch_ + 1, why);
  Add({.run =
           [this, then = std::move(then)] {
             DropState();
             then();
           },
       .drops_job = true});
}

// ---- the thread ------------------------------------------------------------------------------

void JobRunner::Add(Order order) {
  MutexLock lock(&mutex_);
  orders_.push_back(std::move(order));
}

void JobRunner::Run() {
  while (true) {
    Order order;
    {
      MutexLock lock(&mutex_);
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stop_ || !orders_.empty();
      };
      mutex_.Await(Condition(&ready));
      if (orders_.empty()) return;
      order = std::move(orders_.front());
      orders_.pop_front();
    }
    if (order.mesh_epoch.has_value() && *order.mesh_epoch < stopped_below()) continue;
    if (beyond_use_ && !order.drops_job) continue;
    try {
      order.run();
    } catch (const std::bad_alloc&) {
      OnOutOfMemory();
    }
  }
}

void JobRunner::Fail(const absl::Status& status) {
  logger_.Error("job_failed", "the job can't go on", {{"error", status.ToString()}});
  core_.Dispatch(worker::JobFailed{std::string(status.message())});
}

// How much memory a job takes is known only when it asks for it, here or in a library. That ends
// the job and not the worker, which has room for smaller ones.
// The kernel promises more than it has and ends the process when that is touched, so that the
// larger part is compared first. (The rest is small beside it, or found out as in OnOutOfMemory.)
absl::Status JobRunner::CheckJobFits() const {
  std::optional<int64_t> available = AvailableMemory();
  if (options_.memory_bytes > 0) {
    available = std::min(available.value_or(options_.memory_bytes), options_.memory_bytes);
  }
  return CheckMemory(*context_, options_.role, available);
}

void JobRunner::OnOutOfMemory() {
  beyond_use_ = true;
  std::string size;
  if (context_ != nullptr) {
    size = absl::StrCat(" of ", context_->layout().parameter_count(),
                        " parameters and micro-batches of ", context_->plan().micro_batch_size,
                        " samples");
  }
  Fail(absl::ResourceExhaustedError(
      absl::StrCat("this worker's memory is too small for the job", size,
                   ": use a smaller model or training.micro_batch, or a larger machine")));
}

bool JobRunner::Prepare(const JobId& job, const std::shared_ptr<const JobSpec>& described) {
  if (context_ != nullptr && context_->id() == job) return true;
  DropState();
  MUSTER_CHECK(described != nullptr) << "an order names job " << job << " without its description";
  const JobSpec& spec = *described;
  Incarnation self;
  {
    MutexLock lock(&mutex_);
    self = self_;
    job_fleet_id_ = fleet_id_;
  }
  const std::string& checkpoints = spec.checkpoints.directory;
  if (!checkpoints.empty()) {
    const absl::Status writable = CheckRoot(files_, checkpoints, self);
    if (!writable.ok()) {
      Fail(Annotate(writable, "checkpoints.directory"));
      return false;
    }
  }
  absl::StatusOr<std::unique_ptr<JobContext>> context =
      JobContext::Create(job, spec, files_, device_, options_.role == MemberRole::kWorker);
  if (!context.ok()) {
    Fail(context.status());
    return false;
  }
  context_ = *std::move(context);
  if (const absl::Status fits = CheckJobFits(); !fits.ok()) {
    Fail(fits);
    return false;
  }
  core_.Dispatch(worker::StateSized{job, StateSizeOf(*context_)});
  replica_ =
      std::make_unique<Replica>(context_->layout(), context_->rule(), context_->learning_rate(),
                                spec.training.clip_norm, options_.arena);
  meter_ = std::make_unique<StepMeter>();
  trainer_ = std::make_unique<Trainer>(*context_, *replica_, *meter_);
  metrics_ = std::make_unique<JobMetrics>(JobMetricsOptions{.directory = options_.run_directory,
                                                            .job = job,
                                                            .host = options_.host,
                                                            .instance = self.ToString(),
                                                            .gauges = options_.gauges},
                                          files_, logger_);
  waits_ = std::make_unique<WaitReporter>(absl::Milliseconds(spec.communication.straggler_ms),
                                          options_.gauges, logger_);
  progress_ = Progress{};
  if (!checkpoints.empty()) {
    {
      CheckpointObserver& observer = *this;
      MutexLock lock(&mutex_);
      checkpointer_ =
          std::make_shared<Checkpointer>(*context_, files_, job_fleet_id_, self, observer);
    }
  }
  logger_.Info("job_ready", "data and model are loaded",
               {{"job", job},
                {"parameters", context_->layout().parameter_count()},
                {"samples", context_->data_shape().size},
                {"steps", context_->total_steps()}});
  return true;
}

absl::Status JobRunner::MakeFresh(const worker::StartFresh& order) {
  if (order.fresh.checkpoint.empty()) {
    MUSTER_RETURN_IF_ERROR(CheckUnused());
    MUSTER_RETURN_IF_ERROR(TakeCheckpointDirectory());
    replica_->Initialize(context_->spec().training.seed, order.tag, RangesIn(order.view));
    return absl::OkStatus();
  }
  MUSTER_ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                          OpenCheckpoint(files_, order.fresh.checkpoint));
  const TrainingProgress& saved = checkpoint.manifest.progress;
  if (saved.job_fingerprint != context_->fingerprint()) {
    return absl::FailedPreconditionError(
        absl::StrCat(order.fresh.checkpoint,
                     ": belongs to another job (model, data, batch, seed or optimizer differ)"));
  }
  if (saved.step != order.tag.step) {
    return absl::FailedPreconditionError(absl::StrCat(
        order.fresh.checkpoint, ": holds step ", saved.step, ", expected step ", order.tag.step));
  }
  // Before it is read, so that the job before no longer removes it.
  MUSTER_RETURN_IF_ERROR(TakeCheckpointDirectory());
  if (Carries(context_->spec().communication.compression)) {
    logger_.Info("residuals_empty",
                 "checkpoints hold no residuals of gradients that are sent in part; they begin at "
                 "zero");
  }
  const std::vector<Range> ranges = RangesIn(order.view);
  return replica_->FillPart(ranges, [&](StatePart& part) -> absl::StatusOr<ReplicaCounters> {
    const auto into = [&part](int array) {
      return [&part, array](int64_t offset, absl::Span<const float> values) {
        part.Put(array, offset, values);
      };
    };
    MUSTER_RETURN_IF_ERROR(LoadParameters(files_, checkpoint, context_->layout(), ranges, into(0)));
    std::vector<OptimizerSlotDestination> slots;
    for (const std::string& name : context_->rule().slot_names()) {
      slots.push_back({.name = name, .take = into(static_cast<int>(slots.size()) + 1)});
    }
    MUSTER_RETURN_IF_ERROR(LoadOptimizer(files_, checkpoint, context_->layout(), ranges, slots));
    return ReplicaCounters{.tag = order.tag,
                           .update_count = saved.update_count,
                           .nonfinite_in_row = saved.nonfinite_in_row,
                           .skipped_steps = saved.step - saved.update_count};
  });
}

void JobRunner::DropState() {
  learning_.reset();
  source_.Withdraw();
  CloseMesh();
  WriteOperations();
  std::shared_ptr<Checkpointer> checkpointer;
  {
    MutexLock lock(&mutex_);
    checkpointer = std::move(checkpointer_);
    checkpointer_ = nullptr;
  }
  checkpointer.reset();
  waits_.reset();
  metrics_.reset();
  coming_epoch_.reset();
  contributors_.clear();
  residuals_handed_on_.clear();
  sealed_part_.reset();
  trainer_.reset();
  meter_.reset();
  replica_.reset();
  context_.reset();
  beyond_use_ = false;
  if (options_.arena != nullptr) options_.arena->others().DropUnused();
}

// ---- observers -------------------------------------------------------------------------------

void JobRunner::OnLearned(uint64_t attempt, const std::optional<StateTag>& applied,
                          const std::optional<StateTag>& learned, bool caught_up) {
  core_.Dispatch(worker::LearnProgress{attempt, applied, learned, caught_up});
}

void JobRunner::OnLearningFailed(uint64_t attempt, const absl::Status& reason) {
  logger_.Warning("learning_failed", "receiving the training state failed",
                  {{"error", reason.ToString()}});
  core_.Dispatch(worker::LearnFailed{attempt, std::string(reason.message())});
}

}  // namespace muster
