// What goes into a worker's core and what comes out of it. Plain values.
//
// Contract of the shell (worker/runtime):
//  - Handle is called under one mutex, and the actions of a call are obeyed in order. Actions that
//    take time (Quiesce, StartFresh, RollForward, ConnectMesh, ...) are started in order, run in
//    the background and end with their event; a later Quiesce waits for or cancels all of them.
//  - The trainer thread asks the core at both doors of a step (rule 1):
//      gradients reduced  -> Handle(StepPrepared) -> goes into the small all-reduce only if the
//                            actions contain ContributeCommit, with the pause flag it carries;
//      record formed      -> Handle(RecordFormed) -> applies only if the actions contain ApplyStep;
//      applied            -> Handle(StepApplied)  -> next step, unless the record said pause.
//    Moving ranges has two such doors: RangesMoved -> SealMove, and MoveSealed -> AdoptPart;
//    without the action, everything stays as it is, old part and new. The record's pause flag is
//    the OR over the members' flags; at the job's last step each trainer sets it itself.
//  - Quiesce{e}: stop trainer, learning, mesh and device work of epochs before e; let an apply or a
//    roll-forward that has started come to its end; close the old mesh (rule 6); then Quiesced{e}.
//    A newer Quiesce replaces one in progress; only the newest needs its event.
//  - An apply, roll-forward or discard that fails ends the process (rule 7).
//  - SessionDetached is reported as soon as the stream breaks, or when nothing has been heard for a
//    lease (keepalive). The shell reconnects by itself, with Hello from WorkerCore::MakeHello().
//  - Timers: SetTimer replaces the timer of the same id; TimerFired is delivered only for a timer
//    still set, which unsets it.
#ifndef MUSTER_WORKER_CORE_EVENTS_H_
#define MUSTER_WORKER_CORE_EVENTS_H_

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "base/control/messages.h"
#include "base/job_spec.h"

namespace muster::worker {

enum class TimerId : uint8_t {
  kHeartbeat = 1,  // repeat the status
  kOrphan = 2,     // no coordinator for orphan_timeout
  kAlone = 3,      // no coordinator for so long that the members should come to rest together
};

// ---- events ----------------------------------------------------------------------------------

struct DirectiveReceived {
  Directive directive;
  Term term = 0;
  // The description of the job that the directive names. The core only hands it on: every order
  // that needs it carries it, so that none can come too late for it.
  std::shared_ptr<const JobSpec> job = nullptr;
};
// A stream to the coordinator is open and Hello is sent. The core answers with a SendStatus.
struct SessionAttached {};
struct SessionDetached {};

struct Quiesced {
  Epoch epoch = 0;
};
// Every data-plane link of the view is up.
struct MeshConnected {
  Epoch epoch = 0;
};
// Connecting failed, or a collective did: the links of this epoch are of no more use. `culprit` is
// the peer at the other end, where one is to blame. May be reported more than once.
struct MeshFailed {
  Epoch epoch = 0;
  std::optional<Rank> culprit;
  std::string reason;
};
// StartFresh or RollForward of this epoch is done.
struct StateReady {
  Epoch epoch = 0;
  StateTag tag;
};
// The reduced gradient of the step is wholly in memory.
// Everything this worker's part of the view needs has come; what it gave from is still here.
struct RangesMoved {
  Epoch epoch = 0;
};
// All members have said RangesMoved.
struct MoveSealed {
  Epoch epoch = 0;
};
struct StepPrepared {
  Epoch epoch = 0;
  Step step = 0;
};
struct RecordFormed {
  Epoch epoch = 0;
  CommitRecord record;
};
struct StepApplied {
  Epoch epoch = 0;
  StateTag tag;
};
// Of the learning with this attempt number; others are ignored. `applied`: state complete and
// updated up to here; only stable steps may be applied, except by LearnUpTo. `learned`: everything
// up to here is buffered.
struct LearnProgress {
  uint64_t attempt = 0;
  std::optional<StateTag> applied;
  std::optional<StateTag> learned;
  bool caught_up = false;
};
// The source is gone or does not have the state. The coordinator names another one.
struct LearnFailed {
  uint64_t attempt = 0;
  std::string reason;
};
struct FinalWorkDone {
  Epoch epoch = 0;
  FinalReport report;
};
// Every member of the view rests in the state of SealAmongMembers.
struct MembersSealed {
  Epoch epoch = 0;
  StateTag tag;
};
// KeepState of this tag is done, or has failed and was logged.
struct StateKept {
  StateTag tag;
};
// Files written and synced, not yet named.
struct CheckpointDurable {
  CheckpointReport report;
  JobId job;
};
// Named, after CommitCheckpointFiles.
struct CheckpointCommitted {
  CheckpointReport report;
  JobId job;
};
// A checkpoint of the job was not named, or this worker's part of it was not written.
struct CheckpointFailed {
  CheckpointFailure failure;
  JobId job;
};
struct ProgressMeasured {
  Progress progress;
};
// How the view's mesh communicates, as far as it is known.
struct PathMeasured {
  Epoch epoch = 0;
  CommunicationPath path;
};
// The same in numbers.
struct LinksMeasured {
  Epoch epoch = 0;
  LinkSpeeds links;
};
// The job's model is built.
struct StateSized {
  JobId job;
  StateSize size;
};
// The collective that stands still now; none: what stood still has gone on.
struct WaitMeasured {
  Epoch epoch = 0;
  std::optional<CollectiveWait> wait;
};
// The job cannot go on here, and could not elsewhere: bad data, a loss that stays NaN.
struct JobFailed {
  std::string reason;
};
struct DrainRequested {};
struct TimerFired {
  TimerId id = TimerId::kHeartbeat;
};

using Event =
    std::variant<DirectiveReceived, SessionAttached, SessionDetached, Quiesced, MeshConnected,
                 MeshFailed, StateReady, RangesMoved, MoveSealed, StepPrepared, RecordFormed,
                 StepApplied, LearnProgress, LearnFailed, FinalWorkDone, MembersSealed, StateKept,
                 CheckpointDurable, CheckpointCommitted, CheckpointFailed, ProgressMeasured,
                 PathMeasured, LinksMeasured, StateSized, WaitMeasured, JobFailed, DrainRequested,
                 TimerFired>;

// ---- actions ---------------------------------------------------------------------------------

// Sent on the current stream; dropped when there is none.
struct SendStatus {
  WorkerStatus status;
};
struct SendSuspicion {
  Suspicion suspicion;
};

// Ends with Quiesced{epoch}.
struct Quiesce {
  Epoch epoch = 0;
  JobId job;
  std::shared_ptr<const JobSpec> spec = nullptr;  // of the job
};

// Of a sharded job (`sharded`): make data and model ready, then LearnProgress{caught_up}. Otherwise
// receive the state from `source`, or go on receiving: chunks and buffered steps whose tags agree
// with the source's are kept. Replaces an earlier attempt. Reports LearnProgress, LearnFailed.
struct StartLearning {
  JobId job;
  Epoch epoch = 0;  // view in which the source is active
  Member source;
  uint64_t attempt = 0;
  std::shared_ptr<const JobSpec> spec = nullptr;
  bool sharded = false;
};
// Stop receiving, keep what is applied, drop what is buffered.
struct StopLearning {};
// Apply what is buffered up to exactly this tag, which is stable, and report
// LearnProgress{applied}.
struct LearnUpTo {
  uint64_t attempt = 0;
  StateTag tag;
};

// Drop any state and make the one of `fresh`; it is named `tag`. Ends with StateReady{epoch, tag}.
struct StartFresh {
  JobId job;
  Epoch epoch = 0;
  StateTag tag;
  FreshStart fresh;
  View view;  // of it the part that is to be made
  std::shared_ptr<const JobSpec> spec = nullptr;
};
// Apply the prepared step of this record. Ends with StateReady{epoch, tag}.
struct RollForward {
  Epoch epoch = 0;
  StateTag tag;
  CommitRecord record;
};
// Give and receive ranges over the view's mesh, as MoveSource says: if `gives`, from the part of
// source.view, anything else held is dropped; if not, drop what is held first. Ends with
// RangesMoved, or the mesh fails.
struct MoveRanges {
  View view;
  MoveSource source;
  bool gives = false;
};
// Answer to RangesMoved: meet the other members. Ends with MoveSealed.
struct SealMove {
  Epoch epoch = 0;
};
// Answer to MoveSealed: free what was given from, the part of this view is the one held.
struct AdoptPart {
  Epoch epoch = 0;
};
// Free the reduced gradient that will not be applied. At once; no event.
struct DiscardPrepared {};
// Ends with MeshConnected or MeshFailed.
struct ConnectMesh {
  View view;
};
// Mesh and state are ready: compute and reduce steps from `first_step` on.
struct RunSteps {
  View view;
  Step first_step = 0;
};
// Answer to StepPrepared: go into the small all-reduce with this pause flag.
struct ContributeCommit {
  Epoch epoch = 0;
  Step step = 0;
  bool pause = false;
};
// Answer to RecordFormed: apply.
struct ApplyStep {
  CommitRecord record;
  StateTag tag;  // of the state after it
};
// Evaluate, write the last checkpoint, report. Ends with FinalWorkDone{epoch}.
struct DoFinalWork {
  Epoch epoch = 0;
  StateTag tag;
};
// Write a checkpoint of the state, which is stable and at rest. Ends with CheckpointDurable.
struct StartDrainCheckpoint {
  StateTag tag;
};
// At rest without a coordinator: wait on the view's mesh until every member is here, which seals
// the state. Ends with MembersSealed, or not at all.
struct SealAmongMembers {
  Epoch epoch = 0;
  StateTag tag;
  absl::Time deadline;
};
// Stopped without a coordinator: write a checkpoint of what is applied. A sealed one gets its name
// at once and replaces and removes nothing; one that is not is set aside under a name that nobody
// resumes from unasked. All members write a sealed one alike: rank 0 first, another only if it does
// not appear. Ends with StateKept.
struct KeepState {
  StateTag tag;
  bool sealed = false;
  Rank rank = 0;
};
// Give the durable files of this tag their name. Ends with CheckpointCommitted.
struct CommitCheckpointFiles {
  StateTag tag;
};
// The job is over for this worker: stop everything of it and drop its state. No event.
struct BecomeIdle {
  JobId job;
  JobState outcome = JobState::kSucceeded;
  std::string reason;
};
// This incarnation is fenced off. Stop everything, drop the state, draw a new incarnation, make a
// new core and join with it. The core is of no more use.
struct Rejoin {
  std::string reason;
};
// Leave the process.
struct Exit {
  int code = 0;
  std::string reason;
};
struct SetTimer {
  TimerId id = TimerId::kHeartbeat;
  absl::Time at;
};
struct CancelTimer {
  TimerId id = TimerId::kHeartbeat;
};
struct Log {
  bool warning = false;
  std::string text;
};

using Action =
    std::variant<SendStatus, SendSuspicion, Quiesce, StartLearning, StopLearning, LearnUpTo,
                 StartFresh, RollForward, MoveRanges, SealMove, AdoptPart, DiscardPrepared,
                 ConnectMesh, RunSteps, ContributeCommit, ApplyStep, DoFinalWork,
                 StartDrainCheckpoint, SealAmongMembers, KeepState, CommitCheckpointFiles,
                 BecomeIdle, Rejoin, Exit, SetTimer, CancelTimer, Log>;
using Actions = std::vector<Action>;

}  // namespace muster::worker

#endif  // MUSTER_WORKER_CORE_EVENTS_H_
