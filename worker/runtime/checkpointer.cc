#include "worker/runtime/checkpointer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace muster {

Checkpointer::Checkpointer(const JobContext& job, FileSystem& files, Incarnation self,
                           CheckpointObserver& observer)
    : job_(job),
      observer_(observer),
      writer_(files, {.root = job.spec().checkpoints.directory,
                      .incarnation = self,
                      .keep_last = job.spec().checkpoints.keep}),
      thread_([this] { Run(); }) {}

Checkpointer::~Checkpointer() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
}

bool Checkpointer::Begin(std::shared_ptr<const ReplicaSnapshot> snapshot) {
  MutexLock lock(&mutex_);
  if (busy_ || to_write_ != nullptr) return false;
  to_write_ = std::move(snapshot);
  return true;
}

void Checkpointer::Commit(const StateTag& tag) {
  MutexLock lock(&mutex_);
  if (durable_.has_value() && durable_->tag == tag) to_commit_ = tag;
}

absl::StatusOr<CheckpointReport> Checkpointer::WaitCommitted(const StateTag& tag,
                                                             absl::Time deadline) {
  MutexLock lock(&mutex_);
  const auto done = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return (committed_.has_value() && committed_->tag == tag) || failed_tag_ == tag;
  };
  if (!mutex_.AwaitWithDeadline(Condition(&done), deadline)) {
    return absl::DeadlineExceededError(absl::StrCat("checkpoint of step ", tag.step, " in ",
                                                    job_.spec().checkpoints.directory,
                                                    " was not approved or not written in time"));
  }
  if (failed_tag_ == tag) return failure_;
  return *committed_;
}

void Checkpointer::Run() {
  while (true) {
    std::shared_ptr<const ReplicaSnapshot> snapshot;
    std::optional<Durable> publish, discard;
    {
      MutexLock lock(&mutex_);
      busy_ = false;
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stop_ || to_write_ != nullptr || to_commit_.has_value();
      };
      mutex_.Await(Condition(&ready));
      if (to_commit_.has_value()) {
        publish = std::exchange(durable_, std::nullopt);
        to_commit_.reset();
      } else if (to_write_ != nullptr) {
        snapshot = std::exchange(to_write_, nullptr);
        discard = std::exchange(durable_, std::nullopt);
      } else {
        discard = std::exchange(durable_, std::nullopt);
        if (!discard.has_value()) return;
      }
      busy_ = true;
    }
    if (discard.has_value()) {
      // Never approved. What can't be removed now is removed by the next writer.
      writer_.Discard(discard->prepared).IgnoreError();
    }
    if (publish.has_value()) Publish(*publish);
    if (snapshot != nullptr) Write(*snapshot);
  }
}

void Checkpointer::Write(const ReplicaSnapshot& snapshot) {
  const ReplicaCounters& counters = snapshot.counters;
  TrainingState state;
  state.progress = {.step = counters.tag.step,
                    .branch = counters.tag.branch,
                    .epoch = counters.tag.epoch,
                    .update_count = counters.update_count,
                    .nonfinite_in_row = counters.nonfinite_in_row,
                    .seed = job_.spec().training.seed,
                    .job = job_.spec().description_json,
                    .job_fingerprint = job_.fingerprint()};
  state.layout = &job_.layout();
  state.parameters = snapshot.arrays[0];
  for (int slot = 0; slot < job_.rule().state_slots(); ++slot) {
    state.slots.push_back({job_.rule().slot_names()[slot], snapshot.arrays[slot + 1]});
  }
  absl::StatusOr<PreparedCheckpoint> prepared = writer_.Prepare(state);
  if (!prepared.ok()) return Fail(counters.tag, prepared.status());
  const CheckpointReport report{counters.tag, prepared->final_path, prepared->parameters_sha256};
  {
    MutexLock lock(&mutex_);
    durable_ = Durable{counters.tag, *std::move(prepared)};
  }
  observer_.OnCheckpointDurable(report);
}

void Checkpointer::Publish(const Durable& durable) {
  absl::StatusOr<CommittedCheckpoint> committed = writer_.Commit(durable.prepared);
  if (!committed.ok()) return Fail(durable.tag, committed.status());
  const CheckpointReport report{durable.tag, committed->path, durable.prepared.parameters_sha256};
  {
    MutexLock lock(&mutex_);
    committed_ = report;
  }
  observer_.OnCheckpointCommitted(report, committed->warnings);
}

void Checkpointer::Fail(const StateTag& tag, const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    failed_tag_ = tag;
    failure_ = status;
  }
  observer_.OnCheckpointFailed(tag, status);
}

}  // namespace muster
