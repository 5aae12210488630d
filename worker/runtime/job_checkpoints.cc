// The part of the job runner that writes and offers checkpoints.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/directory_owner.h"
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
       found->checkpoint.path, manifest.ParametersSha256()},
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

// Every member of the first view does, because the one that would do it for all may die before.
// Who joins later, or is in the next view, finds it done.
absl::Status JobRunner::TakeCheckpointDirectory() {
  const std::string& directory = context_->spec().checkpoints.directory;
  if (directory.empty()) return absl::OkStatus();
  Incarnation self;
  {
    MutexLock lock(&mutex_);
    self = self_;
  }
  const absl::StatusOr<std::string> taken_from = TakeDirectory(
      files_, directory, {.fleet = job_fleet_id_, .job = context_->id()}, self, absl::Now());
  if (!taken_from.ok()) return Annotate(taken_from.status(), "checkpoints.directory");
  if (!taken_from->empty()) {
    logger_.Info("checkpoints_taken_over",
                 absl::StrCat("the checkpoint directory is this job's from now on, and no more of ",
                              *taken_from),
                 {{"directory", directory}});
  }
  return absl::OkStatus();
}

void JobRunner::WriteCheckpoint() {
  Add({.run = [this] {
    StartCheckpoint([](Checkpointer& checkpointer, SavedPart part) {
      return checkpointer.Begin(std::move(part));
    });
  }});
}

void JobRunner::KeepState(const worker::KeepState& order) {
  Add({.run = [this, order] {
    // One after the other, should those before be gone or unable to write.
    const absl::Duration wait =
        order.rank == 0 ? absl::ZeroDuration() : kFirstWait + kNextWait * std::min(order.rank, 16);
    const bool started = StartCheckpoint([&](Checkpointer& checkpointer, SavedPart part) {
      return checkpointer.Keep(std::move(part), order.sealed, wait);
    });
    if (!started) core_.Dispatch(worker::StateKept{order.tag});
  }});
}

bool JobRunner::StartCheckpoint(const std::function<bool(Checkpointer&, SavedPart)>& begin) {
  std::shared_ptr<Checkpointer> checkpointer;
  {
    MutexLock lock(&mutex_);
    checkpointer = checkpointer_;
  }
  if (replica_ == nullptr) return false;
  const StateTag tag = replica_->counters().tag;
  const Step step = tag.step;
  SavedPart part;
  if (sealed_part_.has_value() && sealed_part_->state->counters.tag == tag) {
    part = *sealed_part_;
  } else if (replica_->whole()) {
    part.state = replica_->Snapshot();
  } else {
    logger_.Info("no_checkpoint",
                 "this worker holds only a part of the state, which was not sealed; it writes none",
                 {{"step", step}});
    return false;
  }
  if (checkpointer == nullptr) {
    logger_.Warning("no_checkpoint",
                    "the job names no checkpoint directory; its state is not saved",
                    {{"step", step}});
    return false;
  }
  const absl::Time deadline = absl::Now() + options_.final_checkpoint_timeout;
  while (!begin(*checkpointer, part)) {
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

absl::Status JobRunner::AwaitFree(Epoch epoch, Checkpointer& checkpointer) {
  const absl::Time deadline = absl::Now() + options_.final_checkpoint_timeout;
  while (checkpointer.busy()) {
    if (epoch < stopped_below()) return absl::CancelledError("the view is changing");
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("writing the checkpoint before the last one to ",
                       context_->spec().checkpoints.directory, " did not end in time"));
    }
    absl::SleepFor(kPoll);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> JobRunner::FinalCheckpoint(Epoch epoch, Checkpointer& checkpointer,
                                                       SavedPart part) {
  const StateTag tag = part.state->counters.tag;
  const bool publishes = part.place.index == 0;
  MUSTER_CHECK(checkpointer.Begin(std::move(part))) << "nobody else begins one";
  const absl::Time deadline = absl::Now() + options_.final_checkpoint_timeout;
  while (true) {
    const absl::Time poll = std::min(deadline, absl::Now() + kPoll);
    absl::StatusOr<CheckpointReport> report = checkpointer.WaitDone(tag, poll);
    if (report.ok()) return publishes ? report->path : std::string();
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
  logger_.Warning("checkpoint_failed", "a checkpoint was not published, which stops nothing",
                  {{"checkpoint_step", tag.step}, {"error", status.ToString()}});
  if (options_.gauges != nullptr) options_.gauges->CountCheckpointFailure();
  core_.Dispatch(worker::CheckpointFailed{{tag, std::string(status.message())}, context_->id()});
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
