// Runs the coordinator's core: hands it events one at a time, obeys its actions in order, keeps its
// timers, and answers questions about jobs and members.
//
// Thread-safe. One lock guards the core and everything that follows from it; it is held while a
// record is written down, and never while waiting for the network: links and watchers take what
// they are given without blocking. Lock order: the host's, then a link's or a watcher's.
#ifndef MUSTER_SERVER_RPC_COORDINATOR_HOST_H_
#define MUSTER_SERVER_RPC_COORDINATOR_HOST_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "base/log.h"
#include "muster/v1/coordinator.pb.h"
#include "server/core/coordinator_core.h"
#include "server/rpc/coordinator_metrics.h"
#include "server/rpc/fleet_clock.h"
#include "server/rpc/job_table.h"
#include "server/rpc/record_store.h"
#include "server/rpc/timer_queue.h"

namespace muster {

// The coordinator's end of a worker's session. Called under the host's lock; must not call back.
class SessionLink {
 public:
  virtual ~SessionLink() = default;
  // Queues a directive; after Close it is dropped.
  virtual void Send(std::shared_ptr<const v1::SessionResponse> directive) = 0;
  // Ends the session once what is queued has left.
  virtual void Close(const absl::Status& reason) = 0;
};

// Somebody who follows a job. Called under the host's lock; must not call back.
class JobWatcher {
 public:
  virtual ~JobWatcher() = default;
  // The job's state, which replaces any older one. With `last`, nothing follows.
  virtual void OnJob(std::shared_ptr<const v1::Job> job, bool last) = 0;
  virtual void OnShutdown() = 0;
};

struct CoordinatorHostOptions {
  CoordinatorOptions core;
  // Progress of a job reaches watchers at most this often; other changes at once.
  absl::Duration progress_interval = absl::Milliseconds(100);
  absl::Duration metrics_interval = absl::Seconds(1);
  int max_watchers = 256;
  // A page of ListJobs ends early beyond this.
  size_t max_page_bytes = 2 << 20;
  // Called once, from any thread and under the host's lock, if a decision could not be written
  // down: the coordinator has stopped and the process should end.
  std::function<void(const absl::Status&)> on_fatal;
};

class CoordinatorHost {
 public:
  // Begins a new term over what `store` holds. Everything passed by reference must outlive the
  // host; `metrics` may be null.
  static absl::StatusOr<std::shared_ptr<CoordinatorHost>> Start(CoordinatorHostOptions options,
                                                                RecordStore& store,
                                                                FileSystem& files, Logger& logger,
                                                                CoordinatorMetrics* metrics);
  // Requires: Stop was called.
  ~CoordinatorHost();

  // Handles no more events; ends every session and watch with UNAVAILABLE. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  // ---- sessions (coordinator_host.cc)

  // A stream said Hello. A former stream of the same incarnation is closed.
  void OpenSession(const Hello& hello, std::shared_ptr<SessionLink> link)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Words on a stream that is no longer its incarnation's newest are ignored.
  void OnStatus(Incarnation worker, const SessionLink* link, WorkerStatus status)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnSuspicion(Incarnation worker, const SessionLink* link, Suspicion suspicion)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The stream has ended; `reason` is one word for the metrics.
  void SessionEnded(Incarnation worker, const SessionLink* link, absl::string_view reason)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // ---- calls (host_calls.cc); errors as the service's comments say

  // Reads files, so it may take long.
  absl::StatusOr<v1::Job> SubmitJob(const v1::SubmitJobRequest& request)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<v1::Job> GetJob(const JobId& id) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<v1::ListJobsResponse> ListJobs(const v1::ListJobsRequest& request)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<v1::SwitchJobResponse> SwitchJob(const v1::SwitchJobRequest& request)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<v1::ExplainStrategyResponse> ExplainStrategy(const JobId& id)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<v1::CancelJobResponse> CancelJob(const v1::CancelJobRequest& request)
      ABSL_LOCKS_EXCLUDED(mutex_);
  v1::ListMembersResponse ListMembers() ABSL_LOCKS_EXCLUDED(mutex_);
  // The member with this rank in the job's view in force. FAILED_PRECONDITION, NOT_FOUND.
  absl::StatusOr<Member> FindRank(const JobId& id, Rank rank) ABSL_LOCKS_EXCLUDED(mutex_);

  // Calls the watcher with the present state before it returns OK.
  absl::Status AddWatcher(const JobId& id, std::shared_ptr<JobWatcher> watcher)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void RemoveWatcher(const JobWatcher* watcher) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Session {
    std::shared_ptr<SessionLink> link;
    std::map<size_t, Directive> last;  // by kind, to tell retransmissions
  };

  CoordinatorHost(CoordinatorHostOptions options, RecordStore& store, FileSystem& files,
                  Logger& logger, CoordinatorMetrics* metrics, PersistentState state);
  absl::Status LoadJobs() ABSL_LOCKS_EXCLUDED(mutex_);
  void RunTimers() ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Time Now() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A moment of the fleet's time as a person's clock shows it: the fleet's stands still while this
  // process does. InfinitePast stays what it is.
  absl::Time OnTheWall(absl::Time moment) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Handle(const coordinator::Event& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Obey(const coordinator::Actions& actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False after an error of the store: nothing more may be done.
  bool Write(const PersistentRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fail(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Send(const coordinator::SendDirective& action) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Take(const coordinator::JobChanged& change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Take(const coordinator::ViewChangeReport& report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What log lines say of where the running job is.
  void NoteStep(const WorkerStatus& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetLogContext(const JobId& job, Epoch epoch, Step step)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NotePath(Incarnation worker, const WorkerStatus& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteFailedCheckpoint(Incarnation worker, const WorkerStatus& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WatchStragglers(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NotifyWatchers(const JobId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NotifyChanged() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<v1::Job> Describe(const JobId& id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Which jobs a queued one waits for. Requires: there is such a job.
  std::string WhyQueued(const JobId& id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Requires: there is such a job.
  bool HasEnded(const JobId& id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The answer to a request_id that was used before.
  std::optional<absl::StatusOr<v1::Job>> FindSubmitted(const v1::SubmitJobRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsNewest(Incarnation worker, const SessionLink* link) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const CoordinatorHostOptions options_;
  RecordStore& store_;
  FileSystem& files_;
  Logger& logger_;
  CoordinatorMetrics* const metrics_;

  absl::Mutex mutex_;
  FleetClock clock_ ABSL_GUARDED_BY(mutex_);
  CoordinatorCore core_ ABSL_GUARDED_BY(mutex_);
  TimerQueue timers_ ABSL_GUARDED_BY(mutex_);
  JobTable jobs_ ABSL_GUARDED_BY(mutex_);
  std::map<Incarnation, Session> sessions_ ABSL_GUARDED_BY(mutex_);
  std::multimap<JobId, std::shared_ptr<JobWatcher>> watchers_ ABSL_GUARDED_BY(mutex_);
  std::set<JobId> changed_ ABSL_GUARDED_BY(mutex_);           // to be told of at once
  std::set<JobId> progressed_ ABSL_GUARDED_BY(mutex_);        // to be told of in a while
  std::map<JobId, Step> shown_step_ ABSL_GUARDED_BY(mutex_);  // newest progress seen
  JobId logged_job_ ABSL_GUARDED_BY(mutex_);                  // of the log's context; empty: none
  Epoch logged_epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  Step logged_step_ ABSL_GUARDED_BY(mutex_) = 0;
  StragglerWatch stragglers_ ABSL_GUARDED_BY(mutex_);  // of the view in force
  JobId straggling_job_ ABSL_GUARDED_BY(mutex_);       // theirs
  bool late_waits_ ABSL_GUARDED_BY(mutex_) = false;    // a status spoke of one since the last look
  absl::Time last_look_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();  // at stragglers
  bool wake_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread timer_thread_;
};

}  // namespace muster

#endif  // MUSTER_SERVER_RPC_COORDINATOR_HOST_H_
