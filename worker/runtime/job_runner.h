// The job's thread of a worker: carries out, one after the other, what the core orders for the job.
//
// Orders come from the executor thread (worker.h) and return at once; each ends with an event to
// the core, as worker/core/events.h says. Quiesce cuts short what belongs to older epochs: it
// aborts the mesh and skips queued orders that would communicate, but lets applies and
// roll-forwards come to their end.
#ifndef MUSTER_WORKER_RUNTIME_JOB_RUNNER_H_
#define MUSTER_WORKER_RUNTIME_JOB_RUNNER_H_

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/control/messages.h"
#include "base/file.h"
#include "base/job_spec.h"
#include "base/log.h"
#include "base/mutex.h"
#include "collectives/engine/communicator.h"
#include "collectives/transport/grpc/grpc_listener.h"
#include "collectives/transport/shm/shared_arena.h"
#include "collectives/transport/tcp_listener.h"
#include "worker/core/events.h"
#include "worker/device/device.h"
#include "worker/runtime/checkpointer.h"
#include "worker/runtime/job_context.h"
#include "worker/runtime/job_metrics.h"
#include "worker/runtime/learning.h"
#include "worker/runtime/mesh_operations.h"
#include "worker/runtime/mesh_tuner.h"
#include "worker/runtime/replica.h"
#include "worker/runtime/residual_handover.h"
#include "worker/runtime/saved_part.h"
#include "worker/runtime/state_feed.h"
#include "worker/runtime/step_meter.h"
#include "worker/runtime/trainer.h"
#include "worker/runtime/wait_reporter.h"

namespace muster {

// The core, as the job's thread sees it. Thread-safe; may be called from any thread.
class CorePort {
 public:
  virtual ~CorePort() = default;
  // Handles the event; what opens a door comes back, other actions are carried out later.
  struct Doors {
    std::optional<worker::ContributeCommit> contribute;
    std::optional<worker::ApplyStep> apply;
    std::optional<worker::SealMove> seal_move;
    std::optional<worker::AdoptPart> adopt_part;
  };
  virtual Doors Dispatch(const worker::Event& event) = 0;
};

struct JobRunnerOptions {
  // Where this worker's server takes the calls of meshes; null: no job may ask for gRPC.
  GrpcListener* servers = nullptr;
  // Memory that workers of this host share; null: none.
  std::shared_ptr<SharedArena> arena;
  std::string no_arena = "it has none";  // why there is no arena, where there is none
  std::string host;
  MemberRole role = MemberRole::kWorker;
  int64_t memory_bytes = 0;        // the most that a job may take; 0: what there is
  std::string run_directory;       // for metrics files; empty: none
  WorkerGauges* gauges = nullptr;  // may be null
  // Is shown the mesh in force; may be null.
  MeshOperations* operations = nullptr;
  std::string model_cache;  // directory of measured meshes; empty: none
  // For all links of a view's mesh to be up; then the view has failed.
  absl::Duration mesh_timeout = absl::Seconds(10);
  // For the job's last checkpoint to be complete, the one before it included; then the job fails.
  absl::Duration final_checkpoint_timeout = absl::Seconds(60);
  // For the parts of the state to be where a view wants them; then the view has failed.
  absl::Duration move_timeout = absl::Minutes(10);
};

class JobRunner : private CheckpointObserver, private LearningObserver {
 public:
  // All references must outlive the object.
  JobRunner(const JobRunnerOptions& options, CorePort& core, TcpListener& listener, Device& device,
            FileSystem& files, ReplicaStateSource& source, Logger& logger);
  // Stops everything; dispatches nothing afterwards.
  ~JobRunner() override;

  // Who this worker is from now on. Requires: no job.
  void SetIdentity(Incarnation self, const std::string& fleet_id) ABSL_LOCKS_EXCLUDED(mutex_);

  void Quiesce(const worker::Quiesce& order);
  void StartLearning(const worker::StartLearning& order);
  void StopLearning();
  void LearnUpTo(const worker::LearnUpTo& order);
  void StartFresh(const worker::StartFresh& order);
  void RollForward(const worker::RollForward& order);
  void MoveRanges(const worker::MoveRanges& order);
  void ConnectMesh(const View& view);
  void RunSteps(const View& view, Step first_step);
  void DoFinalWork(Epoch epoch, const StateTag& tag);
  void SealAmongMembers(const worker::SealAmongMembers& order);
  void WriteCheckpoint();
  void KeepState(const worker::KeepState& order);
  void CommitCheckpointFiles(const StateTag& tag) ABSL_LOCKS_EXCLUDED(mutex_);
  void SetStable(const StateTag& stable);
  // Stops everything and drops the job; `then` runs on the job's thread when that is done. Workers
  // that wait for this one in a step are told `why`; with OK they find that it has left.
  void Drop(const absl::Status& why, std::function<void()> then);

 private:
  class Control;

  struct Order {
    // Set for what needs the mesh of this epoch: skipped once a newer epoch is quiesced for.
    std::optional<Epoch> mesh_epoch;
    std::function<void()> run;
    // Carried out even when the job is beyond use.
    bool drops_job = false;
  };

  void Add(Order order) ABSL_LOCKS_EXCLUDED(mutex_);
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends everything that communicates in epochs before `below`, and tells the others why; with OK
  // it only says goodbye. Does not wait for the job's thread.
  void StopMesh(Epoch below, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  void CloseMesh() ABSL_LOCKS_EXCLUDED(mutex_);
  // Leaves what the mesh closed last was doing when it failed in the run directory.
  void WriteOperations();
  void ReportMeshFailure(Epoch epoch, const absl::Status& status, std::optional<Rank> culprit);

  // Makes context and replica of the job if they are not there yet. Reports JobFailed.
  bool Prepare(const JobId& job, const std::shared_ptr<const JobSpec>& described);
  // FAILED_PRECONDITION if checkpoints of an earlier run lie where this one, from the beginning, is
  // to write: the newest of both would be kept, and those are the earlier one's.
  absl::Status CheckUnused();
  // Tells the core of the newest complete checkpoint if the job resumes from one.
  void OfferCheckpoint();
  absl::Status MakeFresh(const worker::StartFresh& order);
  // Makes the checkpoint directory, if there is one, this job's, which begins.
  absl::Status TakeCheckpointDirectory() ABSL_LOCKS_EXCLUDED(mutex_);
  void DoMove(const worker::MoveRanges& order);
  void OfferState(const View& view) ABSL_LOCKS_EXCLUDED(mutex_);
  void KeepPartOf(const View& source);
  // Of jobs whose contributions carry (worker/compression/residuals.h): what those who leave have
  // handed on; and who contributes from now on, with a line for each residual that is lost.
  void TakeResiduals(const View& view, const std::vector<ResidualsGiven>& given);
  void NoteContributors(const View& view);
  // What placement gives this worker in the view.
  std::vector<Range> RangesIn(const View& view) const ABSL_LOCKS_EXCLUDED(mutex_);
  // nullptr if that mesh is not there (any more).
  std::shared_ptr<Communicator> MeshOf(Epoch epoch) ABSL_LOCKS_EXCLUDED(mutex_);
  void Fail(const absl::Status& status);
  // RESOURCE_EXHAUSTED if the job's state is more than this machine has.
  absl::Status CheckJobFits() const;
  void OnOutOfMemory();
  void DoConnect(const View& view);
  // Tells how the mesh of the view in force communicates, if that has changed.
  void PublishPath(const Communicator& communicator);
  void DoRunSteps(const View& view, Step first_step);
  void FinalWork(Epoch epoch, const StateTag& tag);
  // The directory; empty if the job wants none or this worker is not the one to publish it.
  absl::StatusOr<std::string> FinalCheckpoint(Epoch epoch, Checkpointer& checkpointer,
                                              SavedPart part);
  // Hands the state, if it is whole, or the part of a sealed one to `begin` of the checkpointer as
  // soon as that is free. False if there is no checkpoint directory or it did not become free in
  // time.
  bool StartCheckpoint(const std::function<bool(Checkpointer&, SavedPart)>& begin)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Until the checkpointer is free.
  absl::Status AwaitFree(Epoch epoch, Checkpointer& checkpointer);
  void DropState();
  void PublishProgress();
  Epoch stopped_below() const { return stopped_below_.load(std::memory_order_acquire); }

  void OnCheckpointDurable(const CheckpointReport& report) override;
  void OnCheckpointCommitted(const CheckpointReport& report,
                             absl::Span<const std::string> warnings) override;
  void OnCheckpointFailed(const StateTag& tag, const absl::Status& status) override;
  void OnStateKept(const StateTag& tag, const absl::StatusOr<std::string>& path) override;
  void OnLearned(uint64_t attempt, const std::optional<StateTag>& applied,
                 const std::optional<StateTag>& learned, bool caught_up) override;
  void OnLearningFailed(uint64_t attempt, const absl::Status& reason) override;

  const JobRunnerOptions options_;
  CorePort& core_;
  TcpListener& listener_;
  Device& device_;
  FileSystem& files_;
  ReplicaStateSource& source_;
  Logger& logger_;

  // Views of smaller epochs are over. Rises only.
  std::atomic<Epoch> stopped_below_{0};
  // The executor thread's own.
  Epoch highest_epoch_ = 0;

  // The job's thread's own.
  std::unique_ptr<JobContext> context_;
  std::string job_fleet_id_;  // of the fleet that the job is of
  std::unique_ptr<Replica> replica_;
  std::unique_ptr<StepMeter> meter_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<JobMetrics> metrics_;
  std::unique_ptr<WaitReporter> waits_;  // outlives every mesh of the job that drives
  CommunicationPath path_;               // of view_
  std::unique_ptr<Learning> learning_;
  MeshTuner tuner_;
  std::optional<View> view_;
  std::shared_ptr<Communicator> closed_mesh_;  // until what it was doing is written
  Epoch closed_epoch_ = 0;
  // Of a move that was not sealed: the view whose part came beside the one that is held, and
  // whether that is the whole state.
  std::optional<Epoch> coming_epoch_;
  bool coming_whole_ = false;
  // Those of the last steps, and who of them has handed on its residuals.
  std::vector<Member> contributors_;
  std::set<Incarnation> residuals_handed_on_;
  // Of a sharded state that was sealed without a coordinator.
  std::optional<SavedPart> sealed_part_;
  Progress progress_;
  bool beyond_use_ = false;  // an order for this job was left half done

  mutable Mutex mutex_;
  std::deque<Order> orders_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  Incarnation self_ ABSL_GUARDED_BY(mutex_);
  std::string fleet_id_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Communicator> communicator_ ABSL_GUARDED_BY(mutex_);
  Epoch communicator_epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<Checkpointer> checkpointer_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_JOB_RUNNER_H_
