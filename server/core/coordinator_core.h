// The coordinator's state machine: who is in the fleet, which view is in force, which job runs.
//
// Pure: time comes in as an argument, everything else as events; what is to be done goes out as
// ordered actions (server/core/events.h). A copyable value, not thread-safe. The rules it keeps are
// in docs/protocol.md; each is named where its check stands.
//
// How it works: an event only updates what is known of a worker, a proposal or a job. Then
// Advance() looks at the whole and does what is due, and SyncDirectives() compares what each worker
// should be told with what it was told and has visibly followed. Nothing depends on a message
// arriving once.
//
// Use:  CoordinatorCore core(options, persisted_state);
//       obey(core.Start(now));  then  obey(core.Handle(event, now))  for each event.
#ifndef MUSTER_SERVER_CORE_COORDINATOR_CORE_H_
#define MUSTER_SERVER_CORE_COORDINATOR_CORE_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/control/digest.h"
#include "base/control/messages.h"
#include "server/core/choose_strategy.h"
#include "server/core/decide.h"
#include "server/core/events.h"
#include "server/core/options.h"
#include "server/core/persistent.h"
#include "server/core/straggler.h"

namespace muster {

// For status calls: one worker the coordinator knows.
struct MemberInfo {
  Member member;
  std::string software_version;
  bool attached = false;
  Rank rank = -1;  // in the view in force; -1: none
  WorkerStatus status;
  absl::Time last_seen;
};

// For status calls: one job, newest knowledge.
struct JobInfo {
  JobPlan plan;
  std::string request_id;
  JobState state = JobState::kQueued;
  std::string reason;
  Step stable_step = 0;      // newest stable step reported
  std::optional<View> view;  // in force or last in force
  AskedStrategy strategy;    // of views to come; if automatic, as chosen so far
  // Of that choice, or why shards are not of the groups it asks for; empty if there is nothing.
  std::string strategy_reason;
  std::optional<Progress> progress;  // newest reported
  std::optional<FinalReport> final_report;
  std::optional<CheckpointReport> newest_checkpoint;
};

class CoordinatorCore {
 public:
  // `state` is what was folded from the records of former terms; empty for a new fleet.
  CoordinatorCore(CoordinatorOptions options, PersistentState state);

  // Must be called once, first: begins the next term.
  coordinator::Actions Start(absl::Time now);
  coordinator::Actions Handle(const coordinator::Event& event, absl::Time now);

  Term term() const { return persistent_.term; }
  const std::string& fleet_id() const { return persistent_.fleet_id; }
  const PersistentState& persistent() const { return persistent_; }
  const CoordinatorOptions& options() const { return options_; }

  // In name order.
  std::vector<MemberInfo> Members() const;
  // In order of submission; ended ones are remembered up to a limit.
  std::vector<JobInfo> Jobs() const;
  std::optional<JobInfo> FindJob(const JobId& id) const;
  std::optional<JobId> FindRequest(absl::string_view request_id) const;
  // What each rank of the view in force last said of its waits, in rank order; empty if there is no
  // view.
  std::vector<RankReport> RankReports() const;
  // Of the running job; none when there is no job or its state lives in checkpoints only.
  const View* CurrentView() const;
  // What the policy makes of the running job with everybody who is here. FAILED_PRECONDITION if it
  // is another job, no worker is here, or none has said how large the job is.
  absl::StatusOr<StrategyChoice> ExplainStrategy(const JobId& id) const;
  // Whether everybody who is here has the memory for it; OK if that is not known.
  // RESOURCE_EXHAUSTED. FAILED_PRECONDITION: it needs one host, and they are on several.
  absl::Status CheckStrategyFits(const JobId& id, const Strategy& strategy) const;
  // The proposal that awaits answers, 0 if none.
  Epoch PendingEpoch() const { return run_.proposal ? run_.proposal->epoch : 0; }

  // Everything that can influence later behaviour, except times and what is only shown, in a
  // canonical order. Attempts are counted modulo a small number.
  void AppendTo(Digest* digest) const;
  // Entries in all tables that grow with the fleet's history; the simulator asserts a bound.
  size_t TableEntries() const;

 private:
  // A directive that went out, by its digest (records may hold NaN, which equals nothing).
  struct Sent {
    uint64_t low = 0;
    uint64_t high = 0;
    absl::Time at;
  };
  // What is known of one live incarnation.
  struct Worker {
    Member self;
    std::string software_version;
    MemoryBudget memory;
    bool attached = false;
    bool lapsed = false;         // silent for a lease
    bool grace_over = false;     // detached for reattach_grace while waited for
    bool grace_armed = false;    // the kReattach timer is set
    bool restart_grace = false;  // only the (long) lease decides: the coordinator was away
    bool status_known = false;
    WorkerStatus status;
    absl::Time last_seen = absl::InfinitePast();
    absl::Time detached_at = absl::InfinitePast();
    absl::Time lease_until = absl::InfinitePast();
    std::optional<Incarnation> learn_source;  // set: a learner
    uint64_t sources_tried = 0;
    bool learn_failed = false;    // learn_source is of no use
    std::map<size_t, Sent> sent;  // by kind of directive
  };
  // A proposal that awaits answers.
  struct Proposal {
    Epoch epoch = 0;
    std::vector<Incarnation> group;     // commit group of the last view that may answer
    std::vector<Incarnation> recruits;  // learners, or the workers of a first view
    std::optional<StateTag> sealed;
    bool recruit_deadline_over = false;
    bool collect_armed = false;
    bool collected = false;
  };
  // Why the next view differs from the last, gathered until it is decided.
  struct ChangeReason {
    std::map<WorkerName, ViewChangeCause> workers;
    // Of a planned change, which may name nobody: what was asked for may be in force already.
    std::optional<ViewChangeCause> planned;
    absl::Time started_at = absl::InfiniteFuture();
  };
  // What a job shows to its user; only stable steps.
  struct Shown {
    StateTag stable;
    std::optional<Progress> progress;
    std::optional<FinalReport> final_report;
  };
  using Link = std::pair<Incarnation, Incarnation>;  // smaller first

  // ---- coordinator_core.cc
  void Advance();
  void AdvanceOnce();
  void Emit(coordinator::Action action);
  void Record(PersistentRecord record);
  void Note(coordinator::Severity severity, std::string text);
  void SetTimer(coordinator::TimerKind kind, absl::Duration after, Incarnation worker = {});
  void CancelTimer(coordinator::TimerKind kind, Incarnation worker = {});
  void On(const coordinator::TimerFired& event);

  // ---- workers.cc: sessions, leases, evictions
  void On(const coordinator::SessionOpened& event);
  void On(const coordinator::SessionClosed& event);
  void On(const coordinator::StatusReceived& event);
  void On(const coordinator::SuspicionReceived& event);
  void Refuse(Incarnation incarnation, const std::string& reason, bool permanent);
  void RenewLease(Incarnation incarnation, Worker& worker, absl::Duration duration);
  void OnLease(Incarnation incarnation);
  void OnReattachGrace(Incarnation incarnation);
  void ArmGrace(Incarnation incarnation, Worker& worker);
  // `permanent`: its process is told not to join as another incarnation.
  void Evict(Incarnation incarnation, const std::string& reason, ViewChangeCause cause,
             bool permanent = false);
  void Retire(Incarnation incarnation, const std::string& reason);
  void Forget(Incarnation incarnation);
  bool IsEvicted(Incarnation incarnation) const;
  bool IsImpostor(Incarnation incarnation, const Worker& worker) const;
  Worker* Find(Incarnation incarnation);
  const Worker* Find(Incarnation incarnation) const;
  std::string NameOf(Incarnation incarnation) const;
  bool IsGone(Incarnation incarnation) const;
  bool IsDraining(Incarnation incarnation) const;
  bool IsServer(Incarnation incarnation) const;

  // ---- view.cc: when to change the view in force
  void KeepView();
  std::optional<std::string> ReasonToPropose() const;
  std::optional<StateTag> PausedTag() const;
  bool ChangeIsDue() const;
  void PlanChange();
  void WatchDrainOfLast();
  bool AllSilent() const;
  void BeginLost();
  void OnOrphanTimeout();
  void GiveEverybodyAnotherChance(Incarnation returned);
  // `left`: the members that hold too little of the state, if that is why.
  void Dissolve(const std::string& reason, std::vector<Incarnation> left = {});

  // ---- learners.cc
  void ManageLearners();
  void ChooseSource(Worker& learner);
  bool IsRecruitable(Incarnation incarnation, const Worker& worker) const;
  // Who may join a view of `strategy` now, and who could as soon as it has learned.
  struct Joiners {
    std::vector<Incarnation> ready;
    int learning = 0;
    int learning_servers = 0;
  };
  Joiners FindJoiners(const Strategy& strategy) const;
  // Parameter servers that a view of `strategy` can take beside those of the view in force.
  int ServerPlaces(const Strategy& strategy) const;
  // The most that a view of the job, now or after a switch, takes.
  int MostServers() const;

  // ---- proposal.cc: asking, deciding
  void StartView();
  void StartProposal(std::vector<Incarnation> recruits, std::optional<StateTag> sealed,
                     const std::string& reason);
  std::vector<Incarnation> CommitGroup() const;
  void AdvanceProposal();
  bool IsAsked(Incarnation incarnation) const;
  bool HasAnswered(Incarnation incarnation) const;
  void DecideNow();
  int CountServing(const std::vector<Incarnation>& members) const;
  std::vector<Incarnation> SurplusServers(const std::vector<Incarnation>& members,
                                          const Strategy& strategy) const;
  void DecideFirst();
  void CountLinkFaults(std::vector<Incarnation>* members);
  bool FindParts(const std::vector<Answer>& answers, const Decision& decision,
                 const std::vector<Incarnation>& staying, const std::vector<Incarnation>& leaving,
                 Activate* activate);
  void CloseProposal();

  // ---- activation.cc
  void NoteChange(const WorkerName& name, ViewChangeCause cause, absl::Time since);
  // For people: what a view on hold waits for. `oversize`: as for PutInForce.
  std::string ReasonToHold(const View& view, const std::string& oversize) const;
  // `oversize`: why the view is on hold although it has enough workers; empty if it is not.
  void PutInForce(Activate decision, const std::string& reason, const std::string& oversize = "");
  void ReportActivation();

  // ---- jobs.cc: queue, checkpoints, end
  void On(const coordinator::JobSubmitted& event);
  void On(const coordinator::JobCancelled& event);
  void On(const coordinator::StrategyRequested& event);
  // What views that begin after `step` are to have by those who ask. The second makes it so.
  AskedStrategy AskedAfter(Step step) const;
  void TakeSwitchesUpTo(Step step);
  void StartNextJob();
  void SetJobState(JobState state, const std::string& reason);
  void EndJobNow(const JobId& job, JobState outcome, const std::string& reason);
  void ShowProgress(const WorkerStatus& status, MemberRole role);
  void WatchFailures();
  void WatchCheckpoints();
  bool AllPartsDurable(const CheckpointReport& first) const;
  void WatchEnd();
  PersistentJob* Job();
  const PersistentJob* Job() const;
  JobInfo Describe(const PersistentJob& job) const;

  // ---- policy.cc: the strategy of the next view
  using Crew = std::vector<Incarnation>;
  // The members that stay and those who are ready to join, whatever the strategy takes.
  Crew CrewToCome() const;
  Crew EverybodyHere() const;
  // What a view of `crew` that begins after `step` is to have.
  Strategy StrategyFor(Step step, const Crew& crew) const;
  // Why a view of `crew` cannot take steps: no strategy fits. Empty: it can.
  std::string Oversize(Step step, const Crew& crew) const;
  void NoteChoice(Step step, const Crew& crew);
  // The policy's choice. None: somebody else chooses, or nothing is known of the job.
  const StrategyChoice* Choose(Step step, const Crew& crew) const;
  ChoiceInputs InputsOf(const AskedStrategy& asked, Step step, const Crew& crew) const;
  bool Settled(Step step) const;
  Step NewestStep() const;
  void NoteResources(const WorkerStatus& status);
  void AddPolicyTo(Digest* digest) const;

  // ---- directives.cc: what each worker should be told
  std::vector<Directive> Desired(Incarnation incarnation, const Worker& worker) const;
  void SyncDirectives();

  CoordinatorOptions options_;
  PersistentLimits limits_;
  PersistentState persistent_;
  Epoch heard_epoch_ = 0;  // highest reported by any worker
  std::map<Incarnation, Worker> workers_;
  std::map<JobId, Shown> shown_;

  // Of the running job; reset when it ends.
  struct Run {
    JobId job;  // empty: none
    JobState state = JobState::kQueued;
    std::string reason;
    bool start_armed = false;
    bool start_over = false;  // start_timeout has passed
    std::optional<Proposal> proposal;
    ChangeReason change;
    bool pause_wanted = false;
    bool pause_batch_armed = false;
    bool lost = false;         // every member is silent; the orphan timer runs
    bool drain_armed = false;  // the drain-checkpoint timer runs
    std::map<Link, int> link_faults;
    bool link_window_armed = false;
    // In the view in force.
    std::set<Link> broken_links;
    bool broken_somewhere = false;                        // a suspicion that names nobody
    std::string failure;                                  // what the last suspicion said
    int fruitless_views = 0;                              // in a row
    std::optional<coordinator::ViewChangeReport> report;  // until its first step
    // As told by workers; the links are those of the view measured last.
    std::optional<StateSize> state_size;
    std::optional<LinkSpeeds> links;
    std::string strategy_reason;  // of the view in force
  };
  Run run_;
  // The last choice and what it was made of, so that a heartbeat costs no new one.
  struct ChoiceMade {
    uint64_t low = 0;
    uint64_t high = 0;
    StrategyChoice choice;
  };
  mutable std::optional<ChoiceMade> choice_made_;

  // Of the call in progress.
  absl::Time now_ = absl::InfinitePast();
  bool changed_ = false;  // Advance() has more to do
  coordinator::Actions actions_;
};

}  // namespace muster

#endif  // MUSTER_SERVER_CORE_COORDINATOR_CORE_H_
