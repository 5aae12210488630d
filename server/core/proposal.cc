// Asking for answers and deciding on them.
#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "server/core/coordinator_core.h"
#include "server/core/decide.h"

namespace muster {

using coordinator::Severity;
using coordinator::TimerKind;

namespace {

bool Contains(const std::vector<Incarnation>& list, Incarnation incarnation) {
  return std::find(list.begin(), list.end(), incarnation) != list.end();
}

// The answers of those of `members` that hold their part.
std::vector<Answer> HoldingAmong(const std::vector<Answer>& answers, const Decision& decision,
                                 const std::vector<Incarnation>& members) {
  std::vector<Answer> holding;
  for (const Answer& answer : answers) {
    if (Contains(decision.holding, answer.worker) && Contains(members, answer.worker)) {
      holding.push_back(answer);
    }
  }
  return holding;
}

}  // namespace

// No view is in force: form the first one, or the first after everything was lost.
void CoordinatorCore::StartView() {
  const PersistentJob& job = *Job();
  std::vector<std::pair<WorkerName, Incarnation>> candidates;
  std::vector<std::pair<WorkerName, Incarnation>> servers;
  for (const auto& [incarnation, worker] : workers_) {
    if (!IsRecruitable(incarnation, worker)) continue;
    (IsServer(incarnation) ? servers : candidates).push_back({worker.self.name, incarnation});
  }
  const bool again = job.branch > 0;
  const size_t least = static_cast<size_t>(std::max(1, job.plan.min_workers));
  const size_t wanted = again || run_.start_over
                            ? least
                            : std::max(least, static_cast<size_t>(job.plan.start_workers));
  if (!again && !run_.start_armed) {
    run_.start_armed = true;
    SetTimer(TimerKind::kStart, job.plan.start_timeout);
  }
  // Whether servers are of use is known only when the job's size is, which workers tell when they
  // have answered; so where the strategy is chosen here all that are there are asked.
  const AskedStrategy& asked = job.asked;
  const size_t most_servers =
      asked.automatic ? servers.size() : static_cast<size_t>(asked.strategy.servers);
  const size_t wanted_servers = again || run_.start_over || asked.automatic ? 0 : most_servers;
  if (candidates.size() < wanted) return;
  if (servers.size() < wanted_servers) {
    return SetJobState(JobState::kStarting, "waiting for parameter servers");
  }
  // Workers that are about to be free of another job may write what this one resumes from.
  if (!again && !run_.start_over &&
      std::any_of(workers_.begin(), workers_.end(), [this](const auto& entry) {
        return entry.second.attached && entry.second.status_known &&
               !entry.second.status.job.empty() && entry.second.status.job != run_.job;
      })) {
    return;
  }
  std::sort(candidates.begin(), candidates.end());
  const size_t most = std::max(least, static_cast<size_t>(job.plan.max_workers));
  if (candidates.size() > most) candidates.resize(most);
  std::sort(servers.begin(), servers.end());
  if (servers.size() > most_servers) servers.resize(most_servers);
  candidates.insert(candidates.end(), servers.begin(), servers.end());
  std::vector<Incarnation> recruits;
  for (const auto& [name, incarnation] : candidates) recruits.push_back(incarnation);
  if (again) {
    // A job that has begun waits for those without whom nothing fits.
    const Step step = job.newest_checkpoint.has_value() ? job.newest_checkpoint->tag.step : 0;
    const std::string oversize = Oversize(step, recruits);
    if (!oversize.empty()) return SetJobState(JobState::kWaiting, oversize);
  }
  run_.change.started_at = std::min(run_.change.started_at, now_);
  if (!again) SetJobState(JobState::kStarting, "workers are here; forming the first view");
  StartProposal(std::move(recruits), std::nullopt,
                again ? "the job starts again" : "the job starts");
}

// Rule 2 stands here: who may answer for the last view. An evicted incarnation never may again.
// (The explorer's mutant lets those back who still claim a part in the job.)
std::vector<Incarnation> CoordinatorCore::CommitGroup() const {
  std::vector<Incarnation> group;
  const View* view = CurrentView();
  if (view == nullptr) return group;
  for (const Member& member : view->members) {
    if (Find(member.incarnation) != nullptr) group.push_back(member.incarnation);
  }
  if (options_.rules.eviction_is_final) return group;
  for (const auto& [incarnation, worker] : workers_) {
    if (worker.status_known && worker.status.job == run_.job && worker.status.active_epoch > 0 &&
        !Contains(group, incarnation)) {
      group.push_back(incarnation);
    }
  }
  return group;
}

void CoordinatorCore::StartProposal(std::vector<Incarnation> recruits,
                                    std::optional<StateTag> sealed, const std::string& reason) {
  CloseProposal();
  // The number is persisted before it is said, and lies beyond all that anybody has heard (rule
  // 13).
  const Epoch epoch = std::max(persistent_.epoch, heard_epoch_) + 1;
  Record(EpochReserved{epoch});
  Proposal proposal;
  proposal.epoch = epoch;
  proposal.group = CommitGroup();
  proposal.recruits = std::move(recruits);
  proposal.sealed = sealed;
  Note(Severity::kInfo, absl::StrFormat("proposal %d to %d members and %d recruits: %s", epoch,
                                        proposal.group.size(), proposal.recruits.size(), reason));
  for (Incarnation incarnation : proposal.group) ArmGrace(incarnation, *Find(incarnation));
  if (!proposal.recruits.empty()) {
    // Of the first view's workers each loads the data first, one perhaps for longer than the
    // others.
    SetTimer(TimerKind::kLearnerAnswer,
             CurrentView() == nullptr
                 ? std::max(Job()->plan.start_timeout, options_.learner_answer_timeout)
                 : options_.learner_answer_timeout);
  }
  run_.proposal = std::move(proposal);
  changed_ = true;
}

void CoordinatorCore::CloseProposal() {
  if (!run_.proposal.has_value()) return;
  if (!run_.proposal->recruits.empty()) CancelTimer(TimerKind::kLearnerAnswer);
  if (run_.proposal->collect_armed) CancelTimer(TimerKind::kCollect);
  run_.proposal.reset();
}

bool CoordinatorCore::IsAsked(Incarnation incarnation) const {
  return run_.proposal.has_value() && (Contains(run_.proposal->group, incarnation) ||
                                       Contains(run_.proposal->recruits, incarnation));
}

bool CoordinatorCore::HasAnswered(Incarnation incarnation) const {
  const Worker* worker = Find(incarnation);
  return worker != nullptr && worker->status_known && run_.proposal.has_value() &&
         worker->status.answered_epoch == run_.proposal->epoch;
}

void CoordinatorCore::AdvanceProposal() {
  Proposal& proposal = *run_.proposal;
  const auto knows_newer = [&](Incarnation incarnation) {
    const Worker* worker = Find(incarnation);
    return worker != nullptr && worker->status_known && worker->status.seen_epoch > proposal.epoch;
  };
  if (std::any_of(proposal.group.begin(), proposal.group.end(), knows_newer) ||
      std::any_of(proposal.recruits.begin(), proposal.recruits.end(), knows_newer)) {
    StartProposal(proposal.recruits, proposal.sealed, "a worker has heard of a newer one");
    return;
  }
  std::erase_if(proposal.recruits, [this](Incarnation incarnation) { return IsGone(incarnation); });
  const bool recruits_pending =
      !proposal.recruit_deadline_over &&
      !std::all_of(proposal.recruits.begin(), proposal.recruits.end(),
                   [this](Incarnation incarnation) { return HasAnswered(incarnation); });
  if (CurrentView() == nullptr) {
    if (!recruits_pending) DecideFirst();
    return;
  }
  bool somebody_here = false;
  bool group_pending = false;
  for (Incarnation incarnation : proposal.group) {
    if (IsGone(incarnation)) continue;
    const Worker& worker = *Find(incarnation);
    if (HasAnswered(incarnation)) {
      // One who answered and then broke its session is waited for as well: a view with a dead
      // member would have to change again at once.
      (worker.attached || worker.restart_grace ? somebody_here : group_pending) = true;
      if (!worker.attached) ArmGrace(incarnation, *Find(incarnation));
    } else {
      group_pending = true;
    }
  }
  if (group_pending) return;
  if (!somebody_here) return BeginLost();
  if (recruits_pending) return;
  // Thirty deaths make one activation (rule 14): when one is sure, wait a moment for others.
  const View& view = *CurrentView();
  const bool somebody_died =
      std::any_of(view.members.begin(), view.members.end(),
                  [this](const Member& member) { return IsGone(member.incarnation); });
  if (somebody_died && !proposal.collected) {
    if (!proposal.collect_armed) SetTimer(TimerKind::kCollect, options_.collect_window);
    proposal.collect_armed = true;
    return;
  }
  DecideNow();
}

// The first view, or the first on a new branch: nobody holds anything that counts (rule 3).
void CoordinatorCore::DecideFirst() {
  const PersistentJob& job = *Job();
  Activate activate;
  View& view = activate.view;
  view.epoch = run_.proposal->epoch;
  view.job = run_.job;
  for (Incarnation incarnation : run_.proposal->recruits) {
    if (HasAnswered(incarnation) && !IsDraining(incarnation)) {
      view.members.push_back(Find(incarnation)->self);
    }
  }
  if (view.workers() < std::max(1, job.plan.min_workers)) {
    CloseProposal();
    return;
  }
  // A job that resumes starts from the newest checkpoint that any of them sees.
  std::optional<CheckpointReport> newest = job.newest_checkpoint;
  for (const Member& member : view.members) {
    const WorkerStatus& status = Find(member.incarnation)->status;
    const std::optional<CheckpointReport>& seen = status.committed;
    if (!seen.has_value() || status.job != run_.job) continue;
    const auto age = [](const CheckpointReport& report) {
      return std::make_pair(report.tag.branch, report.tag.step);
    };
    if (!newest.has_value() || age(*newest) < age(*seen)) newest = seen;
  }
  if (job.branch == 0 && newest.has_value() && newest->tag.step >= job.plan.total_steps) {
    EndJobNow(run_.job, JobState::kFailed,
              absl::StrFormat("checkpoints.resume: %s holds step %d already, the job has %d steps; "
                              "give more steps or another directory",
                              newest->path, newest->tag.step, job.plan.total_steps));
    return;
  }
  if (newest != job.newest_checkpoint) Record(CheckpointNamed{run_.job, *newest});
  const uint64_t branch = std::max(job.branch, newest.has_value() ? newest->tag.branch : 0);
  view.resume = {branch + 1, newest.has_value() ? newest->tag.step : 0, view.epoch};
  view.hold = view.resume.step >= job.plan.total_steps;
  Crew crew;
  for (const Member& member : view.members) crew.push_back(member.incarnation);
  const std::string oversize = Oversize(view.resume.step, crew);
  if (!oversize.empty()) {
    if (job.branch == 0) return EndJobNow(run_.job, JobState::kFailed, oversize);
    return CloseProposal();  // now that the job's size is known, StartView waits
  }
  view.strategy = StrategyFor(view.resume.step, crew);
  NoteChoice(view.resume.step, crew);
  TakeSwitchesUpTo(view.resume.step);
  int servers = view.servers();
  while (servers-- > view.strategy.servers) view.members.pop_back();  // servers stand last
  activate.fresh_start = FreshStart{newest.has_value() ? newest->path : std::string()};
  // A start is caused by those who are here, a restart by those who were lost.
  const ViewChangeCause cause =
      job.branch == 0 ? ViewChangeCause::kStart : ViewChangeCause::kRestart;
  for (auto& [name, its_cause] : run_.change.workers) its_cause = cause;
  if (run_.change.workers.empty()) {
    for (const Member& member : view.members) NoteChange(member.name, cause, now_);
  }
  const std::string reason =
      newest.has_value() ? absl::StrFormat("from the checkpoint of step %d", newest->tag.step)
                         : std::string("from initial weights");
  PutInForce(std::move(activate), reason);
}

void CoordinatorCore::DecideNow() {
  const Proposal proposal = *run_.proposal;
  const View last = CurrentView() == nullptr ? View{} : *CurrentView();
  std::vector<Answer> answers;
  for (Incarnation incarnation : proposal.group) {
    if (!HasAnswered(incarnation)) continue;
    const WorkerStatus& status = Find(incarnation)->status;
    answers.push_back({incarnation, status.has_state, status.applied, status.prepared,
                       status.record, status.holdings});
  }
  const Decision decision = Decide(answers, *Job()->decision, options_.rules.state_is_tagged);
  Crew crew;
  for (const std::vector<Incarnation>* asked : {&proposal.group, &proposal.recruits}) {
    for (Incarnation incarnation : *asked) {
      if (HasAnswered(incarnation) && !IsGone(incarnation) && !IsDraining(incarnation)) {
        crew.push_back(incarnation);
      }
    }
  }
  const Strategy strategy = StrategyFor(decision.resume.step, crew);
  const std::string oversize = Oversize(decision.resume.step, crew);
  const bool hands_on = Job()->plan.workers_hand_on &&
                        std::any_of(answers.begin(), answers.end(), [&](const Answer& answer) {
                          return !IsServer(answer.worker) && IsDraining(answer.worker) &&
                                 !Contains(last.leaving, answer.worker);
                        });
  // Where everybody is to hold everything and whoever can go on does, nothing moves. Otherwise
  // whoever has answered can go on, with what it receives.
  const bool moves = strategy.sharded() || hands_on ||
                     std::any_of(answers.begin(), answers.end(), [&](const Answer& answer) {
                       return Contains(decision.holding, answer.worker) && !answer.holdings.whole;
                     });
  std::vector<Incarnation> members;
  for (const Answer& answer : answers) {
    const bool can_follow =
        Contains(decision.able, answer.worker) || (moves && !decision.able.empty());
    if (can_follow && !IsGone(answer.worker)) members.push_back(answer.worker);
  }
  if (members.empty()) {
    // Those who could go on are gone, or nobody could: the others must join anew.
    Note(Severity::kError, decision.reason);
    for (const Answer& answer : answers) {
      if (!Contains(decision.able, answer.worker)) {
        Evict(answer.worker, "it cannot reach the newest state", ViewChangeCause::kLeave);
      }
    }
    changed_ = true;
    return;
  }
  std::vector<Incarnation> of_good_links = members;
  CountLinkFaults(&of_good_links);
  if (!moves || FindSource(HoldingAmong(answers, decision, of_good_links), *Job()->decision)) {
    members = std::move(of_good_links);
  }
  const auto count_workers = [this](const std::vector<Incarnation>& list) {
    return static_cast<int>(std::count_if(
        list.begin(), list.end(), [this](Incarnation member) { return !IsServer(member); }));
  };
  for (Incarnation incarnation : proposal.recruits) {
    const WorkerStatus& status = Find(incarnation)->status;
    const bool holds = status.has_state &&
                       SameState(status.applied, decision.resume, options_.rules.state_is_tagged);
    if (!HasAnswered(incarnation) || !(holds || moves) || IsDraining(incarnation)) continue;
    if (!IsServer(incarnation) && count_workers(members) >= Job()->plan.max_workers) continue;
    if (IsServer(incarnation) && CountServing(members) >= strategy.servers) continue;
    members.push_back(incarnation);
    NoteChange(Find(incarnation)->self.name, ViewChangeCause::kJoin, now_);
  }

  // Ranks of workers come first.
  std::stable_partition(members.begin(), members.end(),
                        [this](Incarnation member) { return !IsServer(member); });
  // Draining members, and servers that the strategy has no use for, leave when somebody stays;
  // otherwise one of them keeps the state.
  const std::vector<Incarnation> surplus = SurplusServers(members, strategy);
  const auto may_stay = [&](Incarnation member) {
    return !IsDraining(member) && !Contains(surplus, member);
  };
  std::vector<Incarnation> leaving;
  const bool somebody_stays = std::any_of(members.begin(), members.end(), may_stay);
  std::vector<Incarnation> staying;
  // After the last step nobody leaves any more: the job ends.
  const bool ends = moves && decision.resume.step >= Job()->plan.total_steps;
  for (Incarnation incarnation : members) {
    const bool stays = ends || (somebody_stays ? may_stay(incarnation) : staying.empty());
    (stays ? staying : leaving).push_back(incarnation);
  }
  for (Incarnation incarnation : leaving) {
    if (!IsDraining(incarnation)) continue;
    NoteChange(Find(incarnation)->self.name, ViewChangeCause::kDrain, now_);
  }

  Activate activate;
  activate.view.epoch = proposal.epoch;
  activate.view.job = run_.job;
  activate.view.strategy = strategy;
  activate.view.resume = decision.resume;
  activate.roll_forward = decision.roll_forward;
  activate.fresh_start = decision.fresh_start;
  if (moves && !FindParts(answers, decision, staying, leaving, &activate)) {
    Dissolve("the members left do not hold every shard of the state", std::move(members));
    return;
  }
  // Members that hold what nobody else does give it away before they leave.
  if (!activate.view.leaving.empty()) {
    staying.insert(staying.end(), leaving.begin(), leaving.end());
    leaving.clear();
    std::stable_partition(staying.begin(), staying.end(),
                          [this](Incarnation member) { return !IsServer(member); });
  }
  const int workers = count_workers(staying) - count_workers(activate.view.leaving);
  for (Incarnation incarnation : staying) activate.view.members.push_back(Find(incarnation)->self);
  activate.view.hold = (!somebody_stays && !ends) || !activate.view.leaving.empty() ||
                       !oversize.empty() || workers < std::max(1, Job()->plan.min_workers) ||
                       decision.resume.step >= Job()->plan.total_steps;
  NoteChoice(decision.resume.step, crew);
  TakeSwitchesUpTo(decision.resume.step);

  const bool fruitless = last.resume == activate.view.resume &&
                         last.members == activate.view.members && last.strategy == strategy &&
                         last.hold == activate.view.hold;
  run_.fruitless_views = fruitless ? run_.fruitless_views + 1 : 0;
  if (run_.fruitless_views >= options_.fruitless_views) {
    EndJobNow(
        run_.job, JobState::kFailed,
        absl::StrFormat("%d views in a row broke before their first step; the last failure: %s",
                        run_.fruitless_views, run_.failure));
    return;
  }

  // Rule 2: whoever is decided without, or cannot follow, is evicted for good.
  for (Incarnation incarnation : proposal.group) {
    if (Contains(staying, incarnation) || Contains(leaving, incarnation)) continue;
    const bool silent = IsGone(incarnation);
    Evict(incarnation,
          silent ? "it was silent while the view changed" : "it could not stay in the view",
          silent ? ViewChangeCause::kDeath : ViewChangeCause::kLeave);
  }
  PutInForce(std::move(activate), decision.reason, oversize);
}

// Parameter servers among `members` that do not drain.
int CoordinatorCore::CountServing(const std::vector<Incarnation>& members) const {
  return static_cast<int>(std::count_if(members.begin(), members.end(), [this](Incarnation member) {
    return IsServer(member) && !IsDraining(member);
  }));
}

// Those beyond what `strategy` takes.
std::vector<Incarnation> CoordinatorCore::SurplusServers(const std::vector<Incarnation>& members,
                                                         const Strategy& strategy) const {
  std::vector<Incarnation> surplus;
  int places = strategy.servers;
  for (Incarnation incarnation : members) {
    if (!IsServer(incarnation) || IsDraining(incarnation)) continue;
    if (--places < 0) surplus.push_back(incarnation);
  }
  return surplus;
}

// Where each member of a view whose state is in parts, now or before, gets its own: from members
// that hold it (rule 8), else from the fresh start that was not complete. False: neither will do.
// Members that leave stay, to give, until the others hold what they held (rule 9).
bool CoordinatorCore::FindParts(const std::vector<Answer>& answers, const Decision& decision,
                                const std::vector<Incarnation>& staying,
                                const std::vector<Incarnation>& leaving, Activate* activate) {
  const Activate& last = *Job()->decision;
  const auto has_all_of_last = [&](const Answer& answer) {
    return last.view.strategy.sharded() ? answer.holdings.Has(last.view.epoch)
                                        : answer.holdings.whole;
  };
  const std::vector<Answer> holding = HoldingAmong(answers, decision, staying);
  const bool given_away = holding.size() == staying.size() &&
                          std::all_of(holding.begin(), holding.end(), has_all_of_last) &&
                          std::all_of(leaving.begin(), leaving.end(), [&](Incarnation incarnation) {
                            return Contains(last.view.leaving, incarnation);
                          });
  std::vector<Incarnation> members = staying;
  if (!given_away) {
    activate->view.leaving = leaving;
    members.insert(members.end(), leaving.begin(), leaving.end());
  }
  activate->fresh_start.reset();
  activate->move = FindSource(HoldingAmong(answers, decision, members), last);
  if (activate->move.has_value()) return true;
  activate->view.leaving.clear();
  activate->roll_forward.reset();
  activate->fresh_start = last.fresh_start;
  return last.fresh_start.has_value() && last.view.resume == decision.resume;
}

// Rule 14: a link that breaks again and again, with both ends alive, evicts its end with more bad
// links; of two equal ones, the higher rank.
void CoordinatorCore::CountLinkFaults(std::vector<Incarnation>* members) {
  if (options_.link_faults_before_eviction <= 0) return;
  for (const Link& link : run_.broken_links) {
    if (!Contains(*members, link.first) || !Contains(*members, link.second)) continue;
    ++run_.link_faults[link];
    if (!run_.link_window_armed) {
      run_.link_window_armed = true;
      SetTimer(TimerKind::kLinkWindow, options_.link_fault_window);
    }
  }
  const std::map<Link, int> faults = run_.link_faults;
  const auto bad_links = [&](Incarnation incarnation) {
    int count = 0;
    for (const auto& [link, times] : faults) {
      if (link.first == incarnation || link.second == incarnation) count += times;
    }
    return count;
  };
  for (const auto& [link, times] : faults) {
    if (times < options_.link_faults_before_eviction) continue;
    const auto first = std::find(members->begin(), members->end(), link.first);
    const auto second = std::find(members->begin(), members->end(), link.second);
    if (first == members->end() || second == members->end()) continue;
    const int first_bad = bad_links(link.first);
    const int second_bad = bad_links(link.second);
    const bool take_first = first_bad != second_bad ? first_bad > second_bad : first > second;
    const Incarnation loser = take_first ? link.first : link.second;
    members->erase(take_first ? first : second);
    // The caller evicts whoever is asked and not a member.
    Note(Severity::kWarning,
         absl::StrFormat("the link between %s and %s broke %d times; %s leaves", NameOf(link.first),
                         NameOf(link.second), times, NameOf(loser)));
  }
}

}  // namespace muster
