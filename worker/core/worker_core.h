// A worker's control state machine: follows the coordinator's directives, guards the doors through
// which a step changes the state, and says what may be seen from outside.
//
// Pure: time comes in as an argument, everything else as events; what is to be done goes out as
// ordered actions (worker/core/events.h). A copyable value, not thread-safe (the shell holds one
// mutex). The rules it keeps are in docs/protocol.md; each is named where its check stands.
#ifndef MUSTER_WORKER_CORE_WORKER_CORE_H_
#define MUSTER_WORKER_CORE_WORKER_CORE_H_

#include <optional>
#include <string>
#include <variant>

#include "absl/time/time.h"
#include "base/control/digest.h"
#include "base/control/messages.h"
#include "base/control/rules.h"
#include "worker/core/events.h"

namespace muster {

struct WorkerOptions {
  Member self;
  std::string software_version;
  // What an earlier incarnation of this process has learned; a rejoin hands it on.
  std::string fleet_id;
  Epoch highest_epoch = 0;
  Term highest_term = 0;
  MemoryBudget memory;
  // Until Welcome says otherwise.
  absl::Duration heartbeat = absl::Milliseconds(250);
  absl::Duration orphan_timeout = absl::Seconds(60);
  ProtocolRules rules;
};

class WorkerCore {
 public:
  explicit WorkerCore(WorkerOptions options);

  worker::Actions Handle(const worker::Event& event, absl::Time now);

  // First message of each session.
  Hello MakeHello() const;
  // The status as it would be sent now (sequence of the last one sent).
  WorkerStatus Status() const;

  WorkerPhase phase() const;
  // The view this worker is activating or active in; nullptr otherwise.
  const View* view() const;
  bool drain_requested() const { return drain_requested_; }
  // After Rejoin or Exit nothing more comes out.
  bool left() const { return std::holds_alternative<Left>(role_); }
  const std::string& fleet_id() const { return fleet_id_; }
  Epoch highest_epoch() const { return seen_epoch_; }
  Term highest_term() const { return highest_term_; }

  // Everything that can influence later behaviour, except times and the numbers of statuses and of
  // attempts to learn, which only rise.
  void AppendTo(Digest* digest) const;

 private:
  struct Idle {};
  // Receiving state. Not in the commit group.
  struct Learning {
    Learn order;
    std::optional<StateTag> learned;
    bool caught_up = false;
    std::optional<StateTag> applying_up_to;  // LearnUpTo is under way
    std::optional<Propose> proposal;         // sealed; answered when its tag is learned
  };
  // Stopping for proposal `epoch`, then waiting for its decision.
  struct Answering {
    Epoch epoch = 0;
    bool quiesced = false;
  };
  enum class Stage : uint8_t {
    kActivating = 1,
    kRunning = 2,
    kPaused = 3,
    kFinalWork = 4,
    kFinished = 5,
  };
  // In a view.
  struct Active {
    View view;
    Stage stage = Stage::kActivating;
    bool mesh_connected = false;
    bool state_ready = false;
    std::optional<MoveSource> move;
    bool gives = false;   // in the move
    bool moving = false;  // MoveRanges is under way, or done
    bool moved = false;   // sealed
    bool pause_requested = false;
    bool alone = false;     // no coordinator for long: come to rest with the others
    bool sealing = false;   // SealAmongMembers is under way
    bool applying = false;  // between ApplyStep and StepApplied
    bool pausing = false;   // the record held says pause
    bool stepped = false;   // a step was applied in this view
    std::optional<Suspicion> broken;
    std::optional<FinalReport> final_report;
    std::optional<CommunicationPath> path;
    std::optional<LinkSpeeds> links;
    std::optional<CollectiveWait> wait;
  };
  // Stopped by itself, holding its state.
  struct Orphaned {
    Epoch quiesce_epoch = 0;
    Rank rank = 0;  // in the view that ended
    bool quiesced = false;
    bool kept = false;  // KeepState is done
  };
  struct Failed {
    std::string reason;
  };
  struct Left {};
  using Role = std::variant<Idle, Learning, Answering, Active, Orphaned, Failed, Left>;

  // What of a status is worth sending at once.
  struct Headline {
    WorkerPhase phase = WorkerPhase::kIdle;
    JobId job;
    Epoch seen_epoch = 0;
    Epoch answered_epoch = 0;
    Epoch active_epoch = 0;
    bool has_state = false;
    bool caught_up = false;
    bool stepped = false;
    bool drain_requested = false;
    bool late = false;  // a collective here waits for a straggler
    std::optional<StateTag> durable;
    std::optional<StateTag> committed;
    bool operator==(const Headline&) const = default;
  };

  // ---- worker_core.cc: timers, sessions, status
  void On(const worker::SessionAttached& event);
  void On(const worker::SessionDetached& event);
  void On(const worker::JobFailed& event);
  void On(const worker::DrainRequested& event);
  void On(const worker::TimerFired& event);
  void OnAlone();
  void StopAlone();
  bool KeepBeforeEnd(const EndJob& end);
  // Requires: active, and disowned.
  void SetEndOfDisowned();
  void End(const EndJob& end);
  void OnOrphanTimeout();
  void LeaveIfAlone();
  void Emit(worker::Action action);
  void Note(bool warning, std::string text);
  Headline MakeHeadline() const;
  void SendStatusNow();
  void Leave(worker::Action last);

  // ---- directives.cc: what the coordinator says
  void On(const worker::DirectiveReceived& event);
  void Obey(const Welcome& welcome);
  void Obey(const Evicted& evicted);
  void Obey(const Propose& propose);
  void Obey(const Activate& activate);
  void Obey(const Pause& pause);
  void Obey(const Learn& learn);
  void Obey(const Seal& seal);
  void Obey(const CommitCheckpoint& commit);
  void Obey(const EndJob& end);
  void Obey(const Dismiss& dismiss);
  void Obey(const Release& release);
  void BeginAnswer(Epoch epoch);
  void Adopt(const JobId& job);
  void DropState();

  // ---- steps.cc: the view, and the doors of a step
  void On(const worker::Quiesced& event);
  void On(const worker::MeshConnected& event);
  void On(const worker::MeshFailed& event);
  void On(const worker::StateReady& event);
  void On(const worker::RangesMoved& event);
  void On(const worker::MoveSealed& event);
  void On(const worker::StepPrepared& event);
  void On(const worker::RecordFormed& event);
  void On(const worker::StepApplied& event);
  void On(const worker::FinalWorkDone& event);
  void On(const worker::MembersSealed& event);
  bool MayCommit(Epoch epoch, Step step) const;
  void Adopt(Active& active);
  void RunIfReady();
  void BecomePaused();
  void MaybeDrainCheckpoint();
  void MaybeSealAmongMembers();
  Active* InEpoch(Epoch epoch);

  // ---- state.cc: what is held, what may be seen, learning, checkpoints
  void On(const worker::LearnProgress& event);
  void On(const worker::LearnFailed& event);
  void On(const worker::StateKept& event);
  void On(const worker::CheckpointDurable& event);
  void On(const worker::CheckpointCommitted& event);
  void On(const worker::CheckpointFailed& event);
  void On(const worker::ProgressMeasured& event);
  void On(const worker::PathMeasured& event);
  void On(const worker::LinksMeasured& event);
  void On(const worker::StateSized& event);
  void On(const worker::WaitMeasured& event);
  void LearnWhatIsProposed();
  void RaiseStable(const StateTag& tag);
  bool Holds(const StateTag& tag) const;
  // What placement.h gives this worker in `view`, of the state at applied_.
  bool HoldsPartOf(const View& view) const;
  bool SameState(const StateTag& a, const StateTag& b) const;
  bool CanRollForward(const Activate& activate) const;
  StateTag VisibleTag() const;
  bool IsVisible(const StateTag& tag) const;

  WorkerOptions options_;
  std::string fleet_id_;
  Term highest_term_ = 0;
  absl::Duration heartbeat_;
  absl::Duration orphan_timeout_;
  bool attached_ = false;
  absl::Time orphaned_at_;  // while not attached: when the orphan timeout is over
  uint64_t sequence_ = 0;
  Headline sent_headline_;

  Role role_;
  JobId job_;
  std::shared_ptr<const JobSpec> spec_;  // of job_
  std::optional<StateSize> state_size_;  // of job_
  Epoch seen_epoch_ = 0;
  Epoch answered_epoch_ = 0;
  Epoch active_epoch_ = 0;
  // What is held; outlives changes of role.
  bool has_state_ = false;
  StateTag applied_;
  StateTag stable_;
  Holdings holdings_;
  std::optional<Prepared> prepared_;
  std::optional<CommitRecord> record_;
  uint64_t learn_attempt_ = 0;

  bool drain_requested_ = false;
  std::optional<EndJob> disowned_;            // to be obeyed when the state is kept
  std::optional<StateTag> drain_checkpoint_;  // asked for at this tag
  std::optional<StateTag> naming_;            // CommitCheckpointFiles is under way
  std::optional<CheckpointReport> durable_;
  std::optional<CheckpointReport> committed_;
  std::optional<CheckpointFailure> checkpoint_failure_;
  std::optional<Progress> progress_pending_;  // of a step not yet stable
  std::optional<Progress> progress_;

  // Of the call in progress.
  absl::Time now_ = absl::InfinitePast();
  std::shared_ptr<const JobSpec> told_spec_;  // beside the newest directive
  worker::Actions actions_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_CORE_WORKER_CORE_H_
