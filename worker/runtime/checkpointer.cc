#include "worker/runtime/checkpointer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "worker/checkpoint/checkpoint_reader.h"

namespace muster {
namespace {

constexpr absl::Duration kPublishedPoll = absl::Milliseconds(200);

}  // namespace

Checkpointer::Checkpointer(const JobContext& job, FileSystem& files, Incarnation self,
                           CheckpointObserver& observer)
    : job_(job),
      files_(files),
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
  return TakeOrder({.snapshot = std::move(snapshot)});
}

bool Checkpointer::Keep(std::shared_ptr<const ReplicaSnapshot> snapshot, bool sealed,
                        absl::Duration wait_for_others) {
  return TakeOrder({.snapshot = std::move(snapshot),
                    .keep = true,
                    .sealed = sealed,
                    .wait_for_others = wait_for_others});
}

bool Checkpointer::TakeOrder(Order order) {
  MutexLock lock(&mutex_);
  if (busy_ || to_write_.has_value()) return false;
  to_write_ = std::move(order);
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
    std::optional<Order> order;
    std::optional<Durable> publish, discard;
    {
      MutexLock lock(&mutex_);
      busy_ = false;
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stop_ || to_write_.has_value() || to_commit_.has_value();
      };
      mutex_.Await(Condition(&ready));
      if (to_commit_.has_value()) {
        publish = std::exchange(durable_, std::nullopt);
        to_commit_.reset();
      } else if (to_write_.has_value()) {
        order = std::exchange(to_write_, std::nullopt);
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
    if (!order.has_value()) continue;
    if (order->keep) {
      observer_.OnStateKept(order->snapshot->counters.tag, WriteAlone(*order));
    } else {
      Write(*order->snapshot);
    }
  }
}

absl::StatusOr<PreparedCheckpoint> Checkpointer::PrepareFrom(const ReplicaSnapshot& snapshot,
                                                             Leftovers leftovers) {
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
  return writer_.Prepare(state, leftovers);
}

// A sealed state is in the memory of every member, and its checkpoint the same whoever writes it.
absl::StatusOr<std::string> Checkpointer::WriteAlone(const Order& order) {
  if (order.sealed) {
    if (const std::optional<std::string> theirs = AwaitOthers(order)) return *theirs;
  }
  MUSTER_ASSIGN_OR_RETURN(const PreparedCheckpoint prepared,
                          PrepareFrom(*order.snapshot, Leftovers::kKeep));
  if (order.sealed) {
    absl::StatusOr<CommittedCheckpoint> committed = writer_.CommitBesideOthers(prepared);
    if (committed.ok()) return committed->path;
    if (!absl::IsAlreadyExists(committed.status())) return committed.status();
  }
  return writer_.SetAside(prepared);
}

// The checkpoint, if another worker publishes it. Waits as long as another is seen to write.
std::optional<std::string> Checkpointer::AwaitOthers(const Order& order) {
  const StateTag& tag = order.snapshot->counters.tag;
  const std::string sha256 = ParametersSha256(job_.layout(), order.snapshot->arrays[0]);
  const std::string& root = job_.spec().checkpoints.directory;
  int64_t seen_bytes = 0;
  absl::Time deadline = absl::Now() + order.wait_for_others;
  while (true) {
    const auto listed = ListCheckpoints(files_, root, nullptr);
    if (listed.ok()) {
      for (const ListedCheckpoint& checkpoint : *listed) {
        const TrainingProgress& progress = checkpoint.manifest.progress;
        if (tag == StateTag{progress.branch, progress.step, progress.epoch} &&
            checkpoint.manifest.parameters_sha256 == sha256) {
          return checkpoint.path;
        }
      }
    }
    const int64_t bytes = BytesBeingKept(files_, root, tag.step);
    if (bytes != seen_bytes) deadline = absl::Now() + order.wait_for_others;
    seen_bytes = bytes;
    if (absl::Now() >= deadline) return std::nullopt;
    MutexLock lock(&mutex_);
    if (mutex_.AwaitWithDeadline(Condition(&stop_), absl::Now() + kPublishedPoll)) {
      return std::nullopt;
    }
  }
}

void Checkpointer::Write(const ReplicaSnapshot& snapshot) {
  const ReplicaCounters& counters = snapshot.counters;
  absl::StatusOr<PreparedCheckpoint> prepared = PrepareFrom(snapshot, Leftovers::kRemove);
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
