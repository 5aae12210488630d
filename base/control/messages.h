// What the coordinator and the workers say to each other, as plain values.
//
// Both pure cores (server/core, worker/core) speak in these types; proto/convert turns them into
// wire messages and back. Everything is level-triggered: a worker repeats its whole WorkerStatus
// with every heartbeat, and the coordinator repeats the directive a worker has visibly not
// followed. A lost, repeated or reordered message therefore delays progress and never changes the
// outcome.
#ifndef MUSTER_BASE_CONTROL_MESSAGES_H_
#define MUSTER_BASE_CONTROL_MESSAGES_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/control/communication.h"
#include "base/control/resources.h"
#include "base/control/strategy.h"
#include "base/ids.h"

namespace muster {

// Names one state of the model: `step` updates applied on `branch`, the last of which was reduced
// in `epoch`. Two members with equal tags hold equal bits. Falling back to a checkpoint raises the
// branch.
struct StateTag {
  uint64_t branch = 0;
  Step step = 0;
  Epoch epoch = 0;
  auto operator<=>(const StateTag&) const = default;
};

// What the small all-reduce of a step yields: bit-identical on every member of the commit group.
// Holding the record of step k proves that every member had prepared step k.
struct CommitRecord {
  Step step = 0;
  Epoch epoch = 0;      // of the view that formed it
  double loss_sum = 0;  // over the samples of the step
  int64_t samples = 0;
  int64_t correct = 0;
  double gradient_norm = 0;  // of the mean gradient, before clipping
  bool finite = true;        // false: the update is skipped, the step still counts
  bool pause = false;        // everyone stops after applying this step
  // Of a layer-wise update rule, unless the update is skipped: each tensor's factor, which nobody
  // who holds a part of the tensors could find out alone (state/update_rule.h).
  std::vector<double> tensor_factors;
  bool operator==(const CommitRecord&) const = default;
};

enum class MemberRole : uint8_t {
  kWorker = 1,           // computes gradients
  kParameterServer = 2,  // owns shards, applies updates, computes nothing
};

// A member of a view.
struct Member {
  WorkerName name;
  Incarnation incarnation;
  std::string host;          // host identity, for placement
  std::string data_address;  // host:port of the data plane
  std::string rpc_address;   // host:port of the worker's gRPC server (state transfer, health)
  std::string device;        // for example "cpu"
  MemberRole role = MemberRole::kWorker;
  bool operator==(const Member&) const = default;
};

// An agreed membership. Members stand in rank order, the workers before the parameter servers; who
// holds what is placement.h's.
struct View {
  Epoch epoch = 0;
  JobId job;
  std::vector<Member> members;
  StateTag resume;  // the state every member holds when it starts
  bool hold =
      false;  // keep the state, connect, but run no step (fewer workers than the job's least)
  Strategy strategy;
  // Members that own nothing: they hand on what they hold, and are left out of the next view. This
  // one is on hold.
  std::vector<Incarnation> leaving;
  bool operator==(const View&) const = default;
  // -1 if the incarnation is no member.
  Rank RankOf(Incarnation incarnation) const {
    for (size_t i = 0; i < members.size(); ++i) {
      if (members[i].incarnation == incarnation) return static_cast<Rank>(i);
    }
    return -1;
  }
  // The first so many ranks are workers: the contributors of a step (rule 11).
  int workers() const {
    int count = 0;
    for (const Member& member : members) count += member.role == MemberRole::kWorker;
    return count;
  }
  int servers() const { return static_cast<int>(members.size()) - workers(); }
};

// ---- worker to coordinator -------------------------------------------------------------------

// First message of a session. A worker that re-attaches after a lost connection sends the same
// incarnation; a restarted or evicted one a new one.
struct Hello {
  Member self;
  uint32_t protocol_version = 0;
  std::string software_version;
  std::string fleet_id;     // empty if the worker has never been welcomed
  Epoch highest_epoch = 0;  // ever heard of
  Term highest_term = 0;
  MemoryBudget memory;
  bool operator==(const Hello&) const = default;
};

enum class WorkerPhase : uint8_t {
  kIdle = 1,        // no job
  kLearning = 2,    // receiving state from a live worker, not in the commit group
  kQuiesced = 3,    // answered proposal `answered_epoch`; nothing older can change state any more
  kActivating = 4,  // following Activate: rolling forward, connecting the mesh
  kRunning = 5,     // taking steps in `active_epoch`
  kPaused = 6,      // applied a step whose record said pause; still connected
  kFinished = 7,    // final work done after Seal
  kFailed = 8,      // the job cannot go on here; see `failure`
  kOrphaned = 9,    // stopped after orphan_timeout without a coordinator
};

// A step whose reduced gradient is wholly in memory.
struct Prepared {
  Step step = 0;
  Epoch epoch = 0;
  bool operator==(const Prepared&) const = default;
};

// Checkpoint files that are durable but not yet named (rule 15), or committed ones.
struct CheckpointReport {
  StateTag tag;
  std::string path;      // final directory
  std::string checksum;  // SHA-256 over the parameters, those of the part
  // Several workers may write one: its first part's writer gives all parts their name.
  int32_t part = 0;
  int32_t parts = 1;
  bool operator==(const CheckpointReport&) const = default;
};

// Of the last checkpoint that a worker could not write or give its name, until there is a newer
// one.
struct CheckpointFailure {
  StateTag tag;
  std::string error;  // one line for the user
  bool operator==(const CheckpointFailure&) const = default;
};

// Measurements; the cores never look inside. Only stable steps are reported (rule 4).
struct Progress {
  Step step = 0;
  double loss = 0;  // mean over the samples of that step
  double learning_rate = 0;
  double gradient_norm = 0;
  double samples_per_second = 0;  // of the whole fleet
  double comm_wait_share = 0;     // share of step time spent waiting for communication
  double step_ms_p50 = 0;
  double step_ms_p99 = 0;
  int64_t skipped_steps = 0;            // non-finite so far
  std::optional<double> test_accuracy;  // absent until evaluated
  std::optional<double> test_loss;
  bool operator==(const Progress&) const = default;
};

// What rank 0 reports when the job's last step is sealed and evaluated.
struct FinalReport {
  Progress progress;
  std::string checkpoint;  // directory, empty if none was asked for
  std::string parameters_sha256;
  bool operator==(const FinalReport&) const = default;
};

// Which part of the state, at `applied`, a worker holds in full: what placement.h gives it in the
// sharded view of epoch `map` (0: none), while ranges move what it has in that of `next` as well
// (0: not all yet), or the whole state.
struct Holdings {
  Epoch map = 0;
  Epoch next = 0;
  bool whole = false;
  bool Has(Epoch epoch) const { return epoch != 0 && (map == epoch || next == epoch); }
  bool operator==(const Holdings&) const = default;
};

// The whole visible state of a worker. `sequence` rises with every status of one incarnation, so
// that an older one that arrives late is recognised.
struct WorkerStatus {
  uint64_t sequence = 0;
  WorkerPhase phase = WorkerPhase::kIdle;
  JobId job;                 // empty when idle
  Epoch seen_epoch = 0;      // highest proposal heard of
  Epoch answered_epoch = 0;  // highest proposal answered
  Epoch active_epoch = 0;    // view in force (0: none)
  bool has_state = false;    // `applied` is meaningful
  StateTag applied;          // a record held counts as applied (rule 2)
  StateTag stable;           // newest state known to be stable
  Holdings holdings;
  std::optional<Prepared> prepared;    // beyond `applied`
  std::optional<CommitRecord> record;  // of step applied.step, if one is held
  // Learners: everything up to this tag is buffered here and can be applied without help.
  std::optional<StateTag> learned;
  bool caught_up = false;  // a learner that is at most a few steps behind
  bool drain_requested = false;
  std::string failure;                        // phase kFailed: one line for the user
  std::optional<CheckpointReport> durable;    // waits for CommitCheckpoint
  std::optional<CheckpointReport> committed;  // newest committed by this worker
  std::optional<Progress> progress;
  std::optional<FinalReport> final_report;
  std::optional<CommunicationPath> path;  // in the view in force
  std::optional<CollectiveWait> wait;     // of the collective that stands still now
  std::optional<StateSize> state_size;    // as soon as the job's model is built here
  std::optional<LinkSpeeds> links;        // in the view in force, if they were measured
  std::optional<CheckpointFailure> checkpoint_failure;  // only shown
  bool operator==(const WorkerStatus&) const = default;
};

// A broken or late connection, reported at once. Suspicion is not death: it starts a proposal.
struct Suspicion {
  Epoch epoch = 0;  // of the view in which the link broke
  Incarnation suspect;
  std::string reason;
  bool operator==(const Suspicion&) const = default;
};

// ---- coordinator to worker -------------------------------------------------------------------

// Answers Hello.
struct Welcome {
  std::string fleet_id;
  int64_t heartbeat_ms = 0;
  int64_t lease_ms = 0;
  int64_t orphan_timeout_ms = 0;
  bool operator==(const Welcome&) const = default;
};

// The incarnation is fenced off for good. `permanent`: joining again would be refused as well
// (another version, another fleet, the fleet is full); otherwise the process may join as a new
// incarnation.
struct Evicted {
  std::string reason;
  bool permanent = false;
  bool operator==(const Evicted&) const = default;
};

// Stop everything older than `epoch`, then answer. `sealed`: a planned change after all have paused
// at this tag; a learner answers once it has learned it.
struct Propose {
  Epoch epoch = 0;
  JobId job;
  std::vector<Incarnation> members;  // who is asked
  std::optional<StateTag> sealed;
  bool operator==(const Propose&) const = default;
};

// Where a state comes from when no survivor holds one.
struct FreshStart {
  std::string checkpoint;  // directory to load, empty: initial weights from the job's seed
  bool operator==(const FreshStart&) const = default;
};

// Where the parts of a view come from: `givers`, members of both views, hold what placement.h gives
// them in `view`, or can roll forward to it; together they hold every shard. Whoever is no giver
// drops what it holds, and receives.
struct MoveSource {
  View view;
  std::vector<Incarnation> givers;
  bool operator==(const MoveSource&) const = default;
};

// The decision on proposal view.epoch.
struct Activate {
  View view;
  std::optional<CommitRecord> roll_forward;  // apply this prepared step first
  std::optional<FreshStart> fresh_start;
  // Ranges move before the first step. Absent: everybody holds its part, or makes it afresh.
  std::optional<MoveSource> move;
  bool operator==(const Activate&) const = default;
};

// Set the pause flag in the next commit record of this epoch.
struct Pause {
  Epoch epoch = 0;
  bool operator==(const Pause&) const = default;
};

// Receive the state from a live worker; of a sharded job only make ready for it, since the parts
// come when the view changes.
struct Learn {
  JobId job;
  // Of the view in which the source is active, or what the worker has seen, if that is higher: a
  // worker that has since heard of a newer proposal ignores it.
  Epoch epoch = 0;
  Member source;
  bool sharded = false;
  bool operator==(const Learn&) const = default;
};

// Every member has applied `tag`, the last step: evaluate, write the last checkpoint, report.
struct Seal {
  Epoch epoch = 0;
  StateTag tag;
  bool operator==(const Seal&) const = default;
};

// The coordinator has recorded that this durable checkpoint may get its name.
struct CommitCheckpoint {
  StateTag tag;
  bool operator==(const CommitCheckpoint&) const = default;
};

enum class JobState : uint8_t {
  kQueued = 1,    // waits for its turn or for workers
  kStarting = 2,  // first view is being formed
  kRunning = 3,
  kWaiting = 4,  // has state, but too few workers
  kSucceeded = 5,
  kFailed = 6,
  kCancelled = 7,
};

// The job is over; drop its state and be idle. Of an unknown job the coordinator has no record, so
// that what workers hold of it may be all there is.
struct EndJob {
  JobId job;
  JobState outcome = JobState::kSucceeded;
  std::string reason;
  bool unknown = false;
  bool operator==(const EndJob&) const = default;
};

// The job goes on without this member, in the view of `epoch` or later: drop its state and be idle.
struct Dismiss {
  JobId job;
  Epoch epoch = 0;
  bool operator==(const Dismiss&) const = default;
};

// A drained worker is no longer needed: exit 0.
struct Release {
  std::string reason;
  bool operator==(const Release&) const = default;
};

using Directive = std::variant<Welcome, Evicted, Propose, Activate, Pause, Learn, Seal,
                               CommitCheckpoint, EndJob, Dismiss, Release>;

// Why a view changed.
enum class ViewChangeCause : uint8_t {
  kStart = 1,
  kDeath = 2,
  kJoin = 3,
  kLeave = 4,  // a worker failed or was evicted while alive
  kDrain = 5,
  kSwitch = 6,
  kRestart = 7,  // everybody was lost; from a checkpoint or from the start
};

const char* Name(MemberRole role);
const char* Name(WorkerPhase phase);
const char* Name(JobState state);
const char* Name(ViewChangeCause cause);

}  // namespace muster

#endif  // MUSTER_BASE_CONTROL_MESSAGES_H_
