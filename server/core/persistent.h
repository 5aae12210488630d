// What the coordinator writes down before it says it (rule 13), and the state those records fold
// into.
//
// Plain values. A store keeps records in order (or the folded state); CoordinatorCore is rebuilt
// from the fold with the next term. Folding is pure and total: any prefix of the records that were
// written is a state the coordinator may restart from.
#ifndef MUSTER_SERVER_CORE_PERSISTENT_H_
#define MUSTER_SERVER_CORE_PERSISTENT_H_

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "base/control/messages.h"

namespace muster {

// What the control plane needs to know of a job; the description itself is the shell's.
struct JobPlan {
  JobId id;
  int min_workers = 1;    // fewer: the job holds its state and waits
  int start_workers = 1;  // the first view waits for so many, up to start_timeout
  // How long it waits for them to be here, and as long again for them to be ready; then it starts
  // with at least min_workers.
  absl::Duration start_timeout = absl::Seconds(30);
  int max_workers = 1024;
  Step total_steps = 0;
  Strategy strategy;                     // at the start
  bool automatic = false;                // path, stage and servers of it are chosen here
  std::vector<StrategySwitch> switches;  // in rising order of steps
  // Workers have something of their own that they hand on before they leave, whatever the strategy.
  bool workers_hand_on = false;
  bool operator==(const JobPlan&) const = default;
};

// The coordinator's start. First record of each term.
struct TermStarted {
  Term term = 0;
  std::string fleet_id;
};

// Epochs up to this one may have been proposed.
struct EpochReserved {
  Epoch epoch = 0;
};

// The incarnation is fenced off for good (rule 2).
struct MemberEvicted {
  Incarnation incarnation;
  std::string reason;
};

// The decision on proposal activate.view.epoch: members, resume tag, ways to reach it.
struct DecisionMade {
  Activate activate;
};

// The state of the job exists only in its checkpoints from here on; its view has no members.
// `left`: the members that were, and held too little of it.
struct ViewDissolved {
  JobId job;
  std::vector<Incarnation> left;
};

struct JobAdded {
  JobPlan plan;
  std::string request_id;
};

struct JobEnded {
  JobId job;
  JobState outcome = JobState::kSucceeded;
  std::string reason;
};

// The manifest decision of a checkpoint (rule 15): its files may get their name.
struct CheckpointDecided {
  JobId job;
  CheckpointReport report;
};

// The files have their name; the newest one is where a restart begins.
struct CheckpointNamed {
  JobId job;
  CheckpointReport report;
};

// Every member has applied the last step.
struct SealDecided {
  JobId job;
  StateTag tag;
};

// Views decided from now on have this strategy, or one that is chosen when they are decided and
// keeps the rest of it; of the plan's switches, the first `switches_done` are in it or were
// overruled.
struct StrategyChosen {
  JobId job;
  Strategy strategy;
  size_t switches_done = 0;
  bool automatic = false;
};

using PersistentRecord =
    std::variant<TermStarted, EpochReserved, MemberEvicted, DecisionMade, ViewDissolved, JobAdded,
                 JobEnded, CheckpointDecided, CheckpointNamed, SealDecided, StrategyChosen>;

// One job, as remembered.
struct PersistentJob {
  JobPlan plan;
  std::string request_id;
  JobState state = JobState::kQueued;  // kQueued, or the outcome
  std::string reason;
  std::optional<Activate> decision;  // of the last active view; no members: dissolved
  uint64_t branch = 0;               // highest ever used; 0 before the first start
  std::optional<CheckpointReport> decided_checkpoint;
  std::optional<CheckpointReport> newest_checkpoint;
  std::optional<StateTag> sealed;
  AskedStrategy asked;  // of views to come
  size_t switches_done = 0;
  // While it was automatic: since which step the strategy in force is, and how often it has changed
  // since the job began.
  Step strategy_since = 0;
  int strategy_changes = 0;
};

struct PersistentState {
  std::string fleet_id;
  Term term = 0;
  Epoch epoch = 0;
  std::vector<PersistentJob> jobs;  // in order of submission
  std::deque<Incarnation> evicted;  // oldest first, bounded by the limit given to Apply

  PersistentJob* FindJob(const JobId& id);
  const PersistentJob* FindJob(const JobId& id) const;
};

// Limits of what is remembered; older entries are forgotten.
struct PersistentLimits {
  size_t evictions = 4096;
  size_t jobs = 256;
};

// Folds `record` into `state`.
void Apply(const PersistentRecord& record, const PersistentLimits& limits, PersistentState* state);

}  // namespace muster

#endif  // MUSTER_SERVER_CORE_PERSISTENT_H_
