// Watching the view in force: when must it change, and when may it?
#include <algorithm>

#include "absl/strings/str_format.h"
#include "server/core/coordinator_core.h"

namespace muster {

using coordinator::Severity;
using coordinator::TimerKind;

void CoordinatorCore::KeepView() {
  ReportActivation();
  if (AllSilent()) return BeginLost();
  if (const std::optional<std::string> reason = ReasonToPropose()) {
    StartProposal({}, std::nullopt, *reason);
    return;
  }
  WatchEnd();
  if (CurrentView() == nullptr) return;
  WatchDrainOfLast();
  if (CurrentView() == nullptr) return;
  ManageLearners();
  PlanChange();
}

std::optional<std::string> CoordinatorCore::ReasonToPropose() const {
  const View& view = *CurrentView();
  for (const Member& member : view.members) {
    const Worker* worker = Find(member.incarnation);
    if (worker == nullptr) return absl::StrFormat("%s was evicted", member.name);
    if (worker->lapsed) return absl::StrFormat("%s is silent", member.name);
    if (!worker->status_known) continue;
    if (worker->status.seen_epoch > view.epoch) {
      return absl::StrFormat("%s knows of proposal %d, which was never decided", member.name,
                             worker->status.seen_epoch);
    }
    if (worker->status.phase == WorkerPhase::kOrphaned) {
      return absl::StrFormat("%s stopped while it had no coordinator", member.name);
    }
  }
  if (!run_.broken_links.empty()) {
    const Link& link = *run_.broken_links.begin();
    return absl::StrFormat("the link between %s and %s broke", NameOf(link.first),
                           NameOf(link.second));
  }
  if (run_.broken_somewhere) return "a collective failed";
  return std::nullopt;
}

// The state all members rest at, if they do.
std::optional<StateTag> CoordinatorCore::PausedTag() const {
  const View& view = *CurrentView();
  std::optional<StateTag> tag;
  for (const Member& member : view.members) {
    const Worker* worker = Find(member.incarnation);
    if (worker == nullptr || !worker->status_known) return std::nullopt;
    const WorkerStatus& status = worker->status;
    if (status.active_epoch != view.epoch || status.seen_epoch != view.epoch) return std::nullopt;
    if (status.phase != WorkerPhase::kPaused && status.phase != WorkerPhase::kFinished) {
      return std::nullopt;
    }
    if (tag.has_value() && *tag != status.applied) return std::nullopt;
    tag = status.applied;
  }
  return tag;
}

// Whether a switch or a joiner is a reason to change the view in force.
bool CoordinatorCore::ChangeIsDue() const {
  const View& view = *CurrentView();
  const Strategy next = StrategyFor(view.resume.step, CrewToCome());
  return view.strategy != next || !FindJoiners(next).ready.empty();
}

// Planned changes abort nothing (rule 9): all pause after the same step, then the view changes.
void CoordinatorCore::PlanChange() {
  const View& view = *CurrentView();
  const std::optional<StateTag> paused = PausedTag();
  const Step total_steps = Job()->plan.total_steps;
  if (view.resume.step >= total_steps || (paused.has_value() && paused->step >= total_steps)) {
    return;  // the job ends; nobody needs to come or go before
  }
  const Strategy next =
      StrategyFor(paused.has_value() ? paused->step : view.resume.step, CrewToCome());
  const Joiners joiners = FindJoiners(next);
  const std::vector<Incarnation>& ready = joiners.ready;
  int draining = 0;
  int staying = 0;
  for (const Member& member : view.members) ++(IsDraining(member.incarnation) ? draining : staying);
  // The last members cannot leave each other's state behind; they rest until it is durable or has
  // been learned.
  const bool drain_due = draining > 0 && (staying > 0 || !view.hold || !ready.empty());
  if (drain_due) {
    run_.pause_wanted = true;
    run_.change.started_at = std::min(run_.change.started_at, now_);
  }
  const bool switches = view.strategy != next;
  if ((!ready.empty() || switches) && !run_.pause_wanted) {
    run_.change.started_at = std::min(run_.change.started_at, now_);
    // Whoever is about to be ready comes along. A switch waits for servers alone.
    const int awaited = ready.empty() ? joiners.learning_servers : joiners.learning;
    if (awaited == 0) {
      run_.pause_wanted = true;
    } else if (!run_.pause_batch_armed) {
      run_.pause_batch_armed = true;
      SetTimer(TimerKind::kPauseBatch, options_.pause_batch);
    }
  }
  if (!view.leaving.empty()) {
    run_.pause_wanted = true;
    run_.change.started_at = std::min(run_.change.started_at, now_);
  }
  // All at rest without a wish of ours: it was the wish of an earlier term.
  if (paused.has_value() && !view.hold) run_.pause_wanted = true;
  if (run_.pause_wanted && paused.has_value()) {
    run_.change.planned = draining > 0    ? ViewChangeCause::kDrain
                          : ready.empty() ? ViewChangeCause::kSwitch
                                          : ViewChangeCause::kJoin;
    StartProposal(ready, paused,
                  draining > 0    ? "workers drain"
                  : ready.empty() ? "the strategy changes"
                                  : "workers join");
  }
}

void CoordinatorCore::WatchDrainOfLast() {
  const View view = *CurrentView();
  if (!view.hold) return;
  for (const Member& member : view.members) {
    if (!IsDraining(member.incarnation)) return;
  }
  if (!FindJoiners(StrategyFor(view.resume.step, CrewToCome())).ready.empty()) return;
  for (const Member& member : view.members) {
    const Worker* worker = Find(member.incarnation);
    if (worker != nullptr && worker->status.committed.has_value() &&
        worker->status.committed->tag == view.resume &&
        Job()->newest_checkpoint == worker->status.committed) {
      Dissolve("the last member drained; its state is in " + worker->status.committed->path);
      return;
    }
  }
  if (!run_.drain_armed) {
    run_.drain_armed = true;
    SetJobState(JobState::kWaiting, ReasonToHold(view, ""));
    SetTimer(TimerKind::kDrainCheckpoint, options_.drain_checkpoint_timeout);
  }
}

bool CoordinatorCore::AllSilent() const {
  for (const Member& member : CurrentView()->members) {
    const Worker* worker = Find(member.incarnation);
    if (worker != nullptr && !worker->lapsed) return false;
  }
  return true;
}

// One fleet (rule 5): without an answer of the last view's commit group nothing is decided before
// its members have certainly stopped.
void CoordinatorCore::BeginLost() {
  if (run_.lost) return;
  run_.lost = true;
  const absl::Duration wait = options_.orphan_timeout + options_.orphan_margin;
  SetTimer(TimerKind::kOrphan, wait);
  const std::string text = absl::StrFormat(
      "no word from any member of view %d; waiting %s for one of them before going back to the "
      "newest "
      "checkpoint",
      CurrentView()->epoch, absl::FormatDuration(wait));
  Note(Severity::kError, text);
  SetJobState(JobState::kWaiting, text);
}

void CoordinatorCore::GiveEverybodyAnotherChance(Incarnation returned) {
  const View* view = CurrentView();
  if (view == nullptr || view->RankOf(returned) < 0) return;
  run_.lost = false;
  CancelTimer(TimerKind::kOrphan);
  SetJobState(view->hold ? JobState::kWaiting : JobState::kRunning, "a member is back");
  // Most likely the network between the coordinator and all of them was away.
  for (const Member& member : view->members) {
    Worker* worker = Find(member.incarnation);
    if (worker == nullptr || member.incarnation == returned) continue;
    worker->lapsed = false;
    worker->grace_over = false;
    worker->restart_grace = !worker->attached;
    RenewLease(member.incarnation, *worker, options_.lease + options_.largest_backoff);
  }
}

void CoordinatorCore::OnOrphanTimeout() {
  if (!run_.lost || CurrentView() == nullptr) return;
  Dissolve("every member was lost");
}

void CoordinatorCore::Dissolve(const std::string& reason, std::vector<Incarnation> left) {
  const View* current = CurrentView();
  if (current == nullptr) return;
  const View view = *current;
  for (const Member& member : view.members) {
    if (IsDraining(member.incarnation) && !IsGone(member.incarnation)) {
      Retire(member.incarnation, "drained");
    } else {
      Evict(member.incarnation, reason, ViewChangeCause::kDeath);
    }
  }
  CloseProposal();
  CancelTimer(TimerKind::kOrphan);
  run_.lost = false;
  if (run_.drain_armed) CancelTimer(TimerKind::kDrainCheckpoint);
  run_.drain_armed = false;
  run_.report.reset();
  run_.broken_links.clear();
  run_.broken_somewhere = false;
  run_.pause_wanted = false;
  for (auto& [incarnation, worker] : workers_) worker.learn_source.reset();
  Record(ViewDissolved{run_.job, std::move(left)});
  const std::optional<CheckpointReport>& newest = Job()->newest_checkpoint;
  SetJobState(JobState::kWaiting,
              absl::StrFormat("%s; the job goes on from %s when %d workers are here", reason,
                              newest.has_value()
                                  ? absl::StrFormat("step %d (%s)", newest->tag.step, newest->path)
                                  : std::string("its initial state"),
                              Job()->plan.min_workers));
  changed_ = true;
}

}  // namespace muster
