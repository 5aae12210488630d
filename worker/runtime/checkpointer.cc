#include "worker/runtime/checkpointer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "worker/checkpoint/checkpoint_reader.h"

namespace muster {
namespace {

constexpr absl::Duration kPublishedPoll = absl::Milliseconds(200);
// For a sign that the other parts of a checkpoint are being written.
constexpr absl::Duration kPartsPatience = absl::Seconds(30);

}  // namespace

Checkpointer::Checkpointer(const JobContext& job, FileSystem& files, const std::string& fleet_id,
                           Incarnation self, CheckpointObserver& observer)
    : job_(job),
      files_(files),
      observer_(observer),
      writer_(files, {.root = job.spec().checkpoints.directory,
                      .incarnation = self,
                      .owner = {.fleet = fleet_id, .job = job.id()},
                      .keep_last = job.spec().checkpoints.keep}),
      thread_([this] { Run(); }) {}

Checkpointer::~Checkpointer() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
}

bool Checkpointer::busy() {
  MutexLock lock(&mutex_);
  return busy_ || to_write_.has_value();
}

bool Checkpointer::Begin(SavedPart part) { return TakeOrder({.part = std::move(part)}); }

bool Checkpointer::Keep(SavedPart part, bool sealed, absl::Duration wait_for_others) {
  MUSTER_CHECK(sealed || part.place.count == 1) << "a part of a state that is not sealed";
  return TakeOrder({.part = std::move(part),
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

absl::StatusOr<CheckpointReport> Checkpointer::WaitDone(const StateTag& tag, absl::Time deadline) {
  MutexLock lock(&mutex_);
  const auto written = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return durable_.has_value() && durable_->tag == tag && !durable_->publishes();
  };
  const auto done = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return written() || (committed_.has_value() && committed_->tag == tag) || failed_tag_ == tag;
  };
  if (!mutex_.AwaitWithDeadline(Condition(&done), deadline)) {
    return absl::DeadlineExceededError(absl::StrCat("checkpoint of step ", tag.step, " in ",
                                                    job_.spec().checkpoints.directory,
                                                    " was not approved or not written in time"));
  }
  if (failed_tag_ == tag) return failure_;
  return written() ? durable_->report : *committed_;
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
    if (discard.has_value() && discard->publishes()) {
      // Never approved. What can't be removed now is removed by the next writer.
      writer_.Discard(discard->prepared).IgnoreError();
    }
    if (publish.has_value()) Publish(*publish);
    if (!order.has_value()) continue;
    if (order->keep) {
      observer_.OnStateKept(order->part.state->counters.tag, WriteAlone(*order));
    } else {
      Write(order->part);
    }
  }
}

absl::StatusOr<PreparedCheckpoint> Checkpointer::PrepareFrom(const SavedPart& part,
                                                             Leftovers leftovers) {
  const ReplicaSnapshot& snapshot = *part.state;
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
  state.part = part.place;
  state.parameters = snapshot.arrays[0];
  for (int slot = 0; slot < job_.rule().state_slots(); ++slot) {
    state.slots.push_back({job_.rule().slot_names()[slot], snapshot.arrays[slot + 1]});
  }
  return writer_.Prepare(state, leftovers);
}

// A sealed state is in the memory of every member, and its checkpoint the same whoever writes it.
absl::StatusOr<std::string> Checkpointer::WriteAlone(const Order& order) {
  const bool whole = order.part.place.count == 1;
  if (order.sealed && whole) {
    if (const std::optional<std::string> theirs = AwaitOthers(order)) return *theirs;
  }
  MUSTER_ASSIGN_OR_RETURN(const PreparedCheckpoint prepared,
                          PrepareFrom(order.part, Leftovers::kKeep));
  if (!whole) return PublishTogether(order, prepared);
  if (!order.sealed) return writer_.SetAside(prepared);
  return PublishKept(order.part.state->counters.tag, prepared);
}

absl::StatusOr<std::string> Checkpointer::PublishKept(const StateTag& tag,
                                                      const PreparedCheckpoint& prepared) {
  const absl::Status owner = writer_.CheckOwner();
  if (!owner.ok()) {
    observer_.OnCheckpointFailed(tag, owner);
    return writer_.SetAside(prepared);
  }
  const absl::StatusOr<CommittedCheckpoint> committed = writer_.CommitBesideOthers(prepared);
  if (committed.ok()) return committed->path;
  if (!absl::IsAlreadyExists(committed.status())) return committed.status();
  return writer_.SetAside(prepared);
}

std::optional<std::string> Checkpointer::FindKept(const StateTag& tag,
                                                  const std::optional<std::string>& sha256) {
  const std::string& root = job_.spec().checkpoints.directory;
  auto listed = ListCheckpoints(files_, root, nullptr);
  if (!listed.ok()) return std::nullopt;
  if (!writer_.CheckOwner().ok()) {  // others set it aside as well
    const std::vector<ListedCheckpoint> aside = ListSetAside(files_, root, tag.step);
    listed->insert(listed->end(), aside.begin(), aside.end());
  }
  for (const ListedCheckpoint& checkpoint : *listed) {
    const TrainingProgress& progress = checkpoint.manifest.progress;
    if (tag == StateTag{progress.branch, progress.step, progress.epoch} &&
        (!sha256.has_value() || checkpoint.manifest.ParametersSha256() == *sha256)) {
      return checkpoint.path;
    }
  }
  return std::nullopt;
}

// The checkpoint, if another worker publishes it. Waits as long as another is seen to write.
std::optional<std::string> Checkpointer::AwaitOthers(const Order& order) {
  const StateTag& tag = order.part.state->counters.tag;
  const std::string sha256 = ParametersSha256(job_.layout(), order.part.state->arrays[0]);
  int64_t seen_bytes = 0;
  absl::Time deadline = absl::Now() + order.wait_for_others;
  while (true) {
    if (std::optional<std::string> path = FindKept(tag, sha256)) return path;
    const int64_t bytes = BytesBeingKept(files_, job_.spec().checkpoints.directory, tag.step);
    if (bytes != seen_bytes) deadline = absl::Now() + order.wait_for_others;
    seen_bytes = bytes;
    if (absl::Now() >= deadline) return std::nullopt;
    MutexLock lock(&mutex_);
    if (mutex_.AwaitWithDeadline(Condition(&stop_), absl::Now() + kPublishedPoll)) {
      return std::nullopt;
    }
  }
}

// A part of a sealed state, whose other parts their owners write: whoever sees all of them first
// when it is its turn publishes. Nobody says when they are written, so they are looked for.
absl::StatusOr<std::string> Checkpointer::PublishTogether(const Order& order,
                                                          const PreparedCheckpoint& prepared) {
  const StateTag& tag = order.part.state->counters.tag;
  const absl::Time turn = absl::Now() + order.wait_for_others;
  int64_t seen_bytes = 0;
  absl::Time give_up = absl::InfiniteFuture();
  bool last_try = false;
  while (true) {
    if (const std::optional<std::string> path = FindKept(tag, std::nullopt)) return *path;
    if (last_try || absl::Now() >= turn) {
      const absl::StatusOr<PreparedCheckpoint> whole = writer_.Assemble(prepared);
      if (whole.ok()) return PublishKept(tag, *whole);
      if (last_try || !absl::IsNotFound(whole.status())) return whole.status();
    }
    const int64_t bytes = BytesBeingKept(files_, job_.spec().checkpoints.directory, tag.step);
    if (bytes != seen_bytes) give_up = std::max(turn, absl::Now()) + kPartsPatience;
    seen_bytes = bytes;
    last_try = absl::Now() >= give_up;
    MutexLock lock(&mutex_);
    if (mutex_.AwaitWithDeadline(Condition(&stop_), absl::Now() + kPublishedPoll)) last_try = true;
  }
}

void Checkpointer::Write(const SavedPart& part) {
  const StateTag& tag = part.state->counters.tag;
  absl::StatusOr<PreparedCheckpoint> prepared = PrepareFrom(part, Leftovers::kRemove);
  if (!prepared.ok()) return Fail(tag, prepared.status());
  const CheckpointReport report{.tag = tag,
                                .path = prepared->final_path,
                                .checksum = prepared->parameters_sha256,
                                .part = part.place.index,
                                .parts = part.place.count};
  {
    MutexLock lock(&mutex_);
    durable_ = Durable{tag, *std::move(prepared), report};
  }
  observer_.OnCheckpointDurable(report);
}

void Checkpointer::Publish(const Durable& durable) {
  const absl::StatusOr<PreparedCheckpoint> whole = writer_.Assemble(durable.prepared);
  const absl::StatusOr<CommittedCheckpoint> committed =
      whole.ok() ? writer_.Commit(*whole) : whole.status();
  if (!committed.ok()) {
    // Whoever has taken over may have removed parts, and may be gone: the rest goes with them.
    if (!writer_.CheckOwner().ok()) writer_.Discard(durable.prepared).IgnoreError();
    return Fail(durable.tag, committed.status());
  }
  {
    MutexLock lock(&mutex_);
    committed_ = durable.report;
  }
  observer_.OnCheckpointCommitted(durable.report, committed->warnings);
}

void Checkpointer::Fail(const StateTag& tag, const absl::Status& status) {
  // What another job does in a directory that it has taken over may look like any error.
  const absl::Status owner = writer_.CheckOwner();
  const absl::Status& why = owner.ok() ? status : owner;
  {
    MutexLock lock(&mutex_);
    failed_tag_ = tag;
    failure_ = why;
  }
  observer_.OnCheckpointFailed(tag, why);
}

}  // namespace muster
