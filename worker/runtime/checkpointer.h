// Writes this worker's parts of a job's checkpoints in the background, on a thread of its own:
// Prepare from a copy, then, once the coordinator has recorded the decision, who wrote part 0
// assembles what all have written and commits it.
//
// At most one checkpoint is under way; one that was prepared but never approved is discarded when
// the next begins. A worker that has lost its coordinator, whose approval will not come, keeps its
// state with Keep.
//
// Once another job has taken the directory over nothing is published or removed there any more
// (worker/checkpoint/directory_owner.h): checkpoints fail, and what Keep writes is set aside.
// Thread-safe.
#ifndef MUSTER_WORKER_RUNTIME_CHECKPOINTER_H_
#define MUSTER_WORKER_RUNTIME_CHECKPOINTER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/control/messages.h"
#include "base/mutex.h"
#include "worker/checkpoint/checkpoint_writer.h"
#include "worker/runtime/job_context.h"
#include "worker/runtime/saved_part.h"

namespace muster {

// Called on the checkpointer's thread.
class CheckpointObserver {
 public:
  virtual ~CheckpointObserver() = default;
  virtual void OnCheckpointDurable(const CheckpointReport& report) = 0;
  virtual void OnCheckpointCommitted(const CheckpointReport& report,
                                     absl::Span<const std::string> warnings) = 0;
  // It is not published, or this worker's part of it is not written; why.
  virtual void OnCheckpointFailed(const StateTag& tag, const absl::Status& status) = 0;
  // Keep is done. Where the state is: a checkpoint to resume from, or one that was set aside.
  virtual void OnStateKept(const StateTag& tag, const absl::StatusOr<std::string>& path) = 0;
};

class Checkpointer {
 public:
  // All must outlive the object. `fleet_id`: of the job. Requires: the job names a checkpoint
  // directory.
  Checkpointer(const JobContext& job, FileSystem& files, const std::string& fleet_id,
               Incarnation self, CheckpointObserver& observer);
  // Finishes what is under way.
  ~Checkpointer();

  // True while one is being written, so that Begin and Keep would do nothing.
  bool busy() ABSL_LOCKS_EXCLUDED(mutex_);
  // Starts to write `part`. False, and nothing happens, if another is being written just now.
  bool Begin(SavedPart part) ABSL_LOCKS_EXCLUDED(mutex_);
  // Starts to write `part` as a checkpoint that needs no approval. One that is not sealed is set
  // aside; it must be whole. So is one of a job that the directory no longer belongs to. One that
  // is sealed is what all members keep. If it is whole, this worker writes it only when for
  // `wait_for_others` none has published it or been seen to write it. Otherwise it writes its part,
  // and publishes the whole when all parts are there and after `wait_for_others` nobody else has.
  // False as for Begin; otherwise ends with OnStateKept, at the latest when the object goes.
  bool Keep(SavedPart part, bool sealed, absl::Duration wait_for_others)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The coordinator approves the durable checkpoint of this tag; unknown tags are ignored.
  void Commit(const StateTag& tag) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until the checkpoint of `tag` is committed, or, where another publishes it, this worker's
  // part is durable. DEADLINE_EXCEEDED, or why it failed.
  absl::StatusOr<CheckpointReport> WaitDone(const StateTag& tag, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Durable {
    StateTag tag;
    PreparedCheckpoint prepared;
    CheckpointReport report;
    bool publishes() const { return report.part == 0; }
  };

  struct Order {
    SavedPart part;
    bool keep = false;  // without approval
    bool sealed = false;
    absl::Duration wait_for_others;
  };

  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  bool TakeOrder(Order order) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<PreparedCheckpoint> PrepareFrom(const SavedPart& part, Leftovers leftovers);
  void Write(const SavedPart& part) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::string> WriteAlone(const Order& order) ABSL_LOCKS_EXCLUDED(mutex_);
  std::optional<std::string> AwaitOthers(const Order& order) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::string> PublishTogether(const Order& order,
                                              const PreparedCheckpoint& prepared)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Publishes what all members keep, or sets it aside where that may not be.
  absl::StatusOr<std::string> PublishKept(const StateTag& tag, const PreparedCheckpoint& prepared);
  // Where the state of this tag is kept, by whomever; `sha256`: of its parameters.
  std::optional<std::string> FindKept(const StateTag& tag,
                                      const std::optional<std::string>& sha256);
  void Publish(const Durable& durable) ABSL_LOCKS_EXCLUDED(mutex_);
  void Fail(const StateTag& tag, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  const JobContext& job_;
  FileSystem& files_;
  CheckpointObserver& observer_;
  CheckpointWriter writer_;  // the thread's

  Mutex mutex_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Order> to_write_ ABSL_GUARDED_BY(mutex_);
  std::optional<StateTag> to_commit_ ABSL_GUARDED_BY(mutex_);
  std::optional<Durable> durable_ ABSL_GUARDED_BY(mutex_);
  std::optional<CheckpointReport> committed_ ABSL_GUARDED_BY(mutex_);
  std::optional<StateTag> failed_tag_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_CHECKPOINTER_H_
