// The part of the job runner that writes and offers checkpoints.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/runtime/job_runner.h"

namespace muster {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(20);
// For a sign of another worker that keeps the state.
constexpr absl::Duration kFirstWait = absl::Seconds(4);
constexpr absl::Duration kNextWait = absl::Seconds(1);

}  // namespace

void JobRunner::OfferCheckpoint() {
  absl::StatusOr<FoundCheckpoint> found = FindNewestCheckpoint(
      files_, context_->spec().checkpoints.directory, context_->layout(), context_->fingerprint());
  if (absl::IsNotFound(found.status())) {
    logger_.Info("no_checkpoint", "nothing to resume from; starting at step 0",
                 {{"detail", found.status().message()}});
    return;
  }
  if (!found.ok()) return Fail(found.status());
  for (const std::string& warning : found->warnings) {
    logger_.Warning("checkpoint_passed_over", warning);
  }
  const Manifest& manifest = found->checkpoint.manifest;
  core_.Dispatch(worker::CheckpointCommitted{
      {StateTag{manifest.progress.branch, manifest.progress.step, manifest.progress.epoch},
       found->checkpoint.path, manifest.parameters_sha256},
      context_->id()});
}

absl::Status JobRunner::CheckUnused() {
  const CheckpointsSpec& spec = context_->spec().checkpoints;
  if (spec.directory.empty() || spec.resume) return absl::OkStatus();
  MUSTER_ASSIGN_OR_RETURN(const std::vector<ListedCheckpoint> listed,
                          ListCheckpoints(files_, spec.directory, nullptr));
  if (listed.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("checkpoints.directory: ", listed.front().path,
                   " is of an earlier run; set "
                   "checkpoints.resume to go on from it, or name another directory"));
}

void JobRunner::WriteCheckpoint() {
  Add({.run = [this] {
    StartCheckpoint([](Checkpointer& checkpointer, std::shared_ptr<const ReplicaSnapshot> state) {
      return checkpointer.Begin(std::move(state));
    });
  }});
}

void JobRunner::KeepState(const worker::KeepState& order) {
  Add({.run = [this, order] {
    // One after the other, should those before be gone or unable to write.
    const absl::Duration wait =
        order.rank == 0 ? absl::ZeroDuration() : kFirstWait + kNextWait * std::min(order.rank, 16);
    const bool started = StartCheckpoint(
        [&](Checkpointer& checkpointer, std::shared_ptr<const ReplicaSnapshot> state) {
          return checkpointer.Keep(std::move(state), order.sealed, wait);
        });
    if (!started) core_.Dispatch(worker::StateKept{order.tag});
  }});
}

bool JobRunner::StartCheckpoint(
    const std::function<bool(Checkpointer&, std::shared_ptr<const ReplicaSnapshot>)>& begin) {
  std::shared_ptr<Checkpointer> checkpointer;
  {
    MutexLock lock(&mutex_);
    checkpointer = checkpointer_;
  }
  if (replica_ == nullptr) return false;
  const StateTag tag = replica_->counters().tag;
  const Step step = tag.step;
  std::shared_ptr<const ReplicaSnapshot> state;
  if (replica_->whole()) {
    state = replica_->Snapshot();
  } else if (sealed_whole_ != nullptr && sealed_whole_->counters.tag == tag) {
    state = sealed_whole_;
  }
  if (state == nullptr) {
    // Of a state in shards that the members sealed, rank 0 has gathered the whole.
    logger_.Info("no_checkpoint", "this worker holds only a part of the state; it writes none",
                 {{"step", step}});
    return false;
  }
  if (checkpointer == nullptr) {
    logger_.Warning("no_checkpoint", "the job names no checkpoint directory; its state is lost",
                    {{"step", step}});
    return false;
  }
  const absl::Time deadline = absl::Now() + options_.final_checkpoint_timeout;
  while (!begin(*checkpointer, state)) {
    if (absl::Now() > deadline) {
      logger_.Error("no_checkpoint", "the checkpoint before this one is still being written",
                    {{"step", step}});
      return false;
    }
    absl::SleepFor(kPoll);
  }
  return true;
}

void JobRunner::CommitCheckpointFiles(const StateTag& tag) {
  MutexLock lock(&mutex_);
  if (checkpointer_ != nullptr) checkpointer_->Commit(tag);
}

absl::StatusOr<std::string> JobRunner::FinalCheckpoint(
    Epoch epoch, const StateTag& tag, std::shared_ptr<const ReplicaSnapshot> state) {
  std::shared_ptr<Checkpointer> checkpointer;
  {
    MutexLock lock(&mutex_);
    checkpointer = checkpointer_;
  }
  if (state == nullptr || checkpointer == nullptr) return std::string();
  const absl::Time deadline = absl::Now() + options_.final_checkpoint_timeout;
  while (!checkpointer->Begin(state)) {
    if (epoch < stopped_below()) return absl::CancelledError("the view is changing");
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("writing the checkpoint before the last one to ",
                       context_->spec().checkpoints.directory, " did not end in time"));
    }
    absl::SleepFor(kPoll);
  }
  while (true) {
    const absl::Time poll = std::min(deadline, absl::Now() + kPoll);
    absl::StatusOr<CheckpointReport> report = checkpointer->WaitCommitted(tag, poll);
    if (report.ok()) return report->path;
    if (!absl::IsDeadlineExceeded(report.status())) return report.status();
    if (epoch < stopped_below()) return absl::CancelledError("the view is changing");
    if (absl::Now() >= deadline) return report.status();
  }
}

void JobRunner::OnCheckpointDurable(const CheckpointReport& report) {
  core_.Dispatch(worker::CheckpointDurable{report, context_->id()});
}

void JobRunner::OnCheckpointCommitted(const CheckpointReport& report,
                                      absl::Span<const std::string> warnings) {
  for (const std::string& warning : warnings) logger_.Warning("checkpoint_retention", warning);
  logger_.Info("checkpoint", "checkpoint is complete",
               {{"path", report.path}, {"checkpoint_step", report.tag.step}});
  core_.Dispatch(worker::CheckpointCommitted{report, context_->id()});
}

void JobRunner::OnCheckpointFailed(const StateTag& tag, const absl::Status& status) {
  logger_.Warning("checkpoint_failed", "a checkpoint could not be written; training goes on",
                  {{"checkpoint_step", tag.step}, {"error", status.ToString()}});
}

void JobRunner::OnStateKept(const StateTag& tag, const absl::StatusOr<std::string>& path) {
  if (path.ok()) {
    logger_.Info("state_kept", "stopped without a coordinator; the state is on disk",
                 {{"path", *path}, {"checkpoint_step", tag.step}});
  } else {
    logger_.Error("state_lost", "the state could not be written",
                  {{"checkpoint_step", tag.step}, {"error", path.status().ToString()}});
  }
  core_.Dispatch(worker::StateKept{tag});
}

}  // namespace muster
