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

// Planned changes abort nothing (rule 9): all pause after the same step, then the view changes.
void CoordinatorCore::PlanChange() {
  const View& view = *CurrentView();
  const std::optional<StateTag> paused = PausedTag();
  const Step total_steps = Job()->plan.total_steps;
  if (view.resume.step >= total_steps || (paused.has_value() && paused->step >= total_steps)) {
    return;  // the job ends; nobody needs to come or go before
  }
  const std::vector<Incarnation> ready = ReadyLearners();
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
  if (!ready.empty() && !run_.pause_wanted && !run_.pause_batch_armed) {
    size_t learners = 0;
    for (const auto& [incarnation, worker] : workers_) learners += worker.learn_source.has_value();
    run_.change.started_at = std::min(run_.change.started_at, now_);
    if (ready.size() == learners) {
      run_.pause_wanted = true;
    } else {
      run_.pause_batch_armed = true;
      SetTimer(TimerKind::kPauseBatch, options_.pause_batch);
    }
  }
  if (view.strategy != StrategyAfter(paused.has_value() ? paused->step : view.resume.step) ||
      !view.leaving.empty()) {
    run_.pause_wanted = true;
    run_.change.started_at = std::min(run_.change.started_at, now_);
  }
  // All at rest without a wish of ours: it was the wish of an earlier term.
  if (paused.has_value() && !view.hold) run_.pause_wanted = true;
  if (run_.pause_wanted && paused.has_value()) {
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
  if (!ReadyLearners().empty()) return;
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

void CoordinatorCore::ReportActivation() {
  if (!run_.report.has_value()) return;
  const View& view = *CurrentView();
  coordinator::ViewChangeReport& report = *run_.report;
  bool all_active = true;
  bool stepped = false;
  for (const Member& member : view.members) {
    const Worker* worker = Find(member.incarnation);
    if (worker == nullptr || !worker->status_known) return;
    const WorkerStatus& status = worker->status;
    const bool active =
        status.active_epoch == view.epoch &&
        (status.phase == WorkerPhase::kRunning || status.phase == WorkerPhase::kPaused ||
         status.phase == WorkerPhase::kFinished);
    all_active = all_active && active;
    stepped = stepped || (active && status.applied.step > view.resume.step);
  }
  const bool newly_active = all_active && report.activated_at == absl::InfinitePast();
  if (newly_active) report.activated_at = now_;
  if (stepped) report.first_step_at = now_;
  if (!newly_active && !stepped) return;
  if (stepped && report.activated_at == absl::InfinitePast()) report.activated_at = now_;
  Emit(coordinator::ViewChanged{report});
  if (stepped || view.hold) run_.report.reset();
}

}  // namespace muster
