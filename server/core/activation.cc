// Putting a decision in force, and what is told of it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/control/placement.h"
#include "server/core/coordinator_core.h"

namespace muster {

using coordinator::Severity;
using coordinator::TimerKind;

void CoordinatorCore::NoteChange(const WorkerName& name, ViewChangeCause cause, absl::Time since) {
  run_.change.workers.emplace(name, cause);
  run_.change.started_at = std::min(run_.change.started_at, since);
}

std::string CoordinatorCore::ReasonToHold(const View& view, const std::string& oversize) const {
  if (!oversize.empty()) return oversize + "; the state is kept";
  const bool all_leave =
      std::all_of(view.members.begin(), view.members.end(),
                  [this](const Member& member) { return IsDraining(member.incarnation); });
  if (all_leave) {
    return absl::StrFormat(
        "the last member is leaving; it keeps the state until that is in a checkpoint or others "
        "have taken it over, for at most %s",
        absl::FormatDuration(options_.drain_checkpoint_timeout));
  }
  return absl::StrFormat("%d of at least %d workers; the state is kept", view.workers(),
                         Job()->plan.min_workers);
}

void CoordinatorCore::PutInForce(Activate decision, const std::string& reason,
                                 const std::string& oversize) {
  CloseProposal();
  const View& view = decision.view;
  const View* last = CurrentView();
  const bool switches =
      last != nullptr && (last->strategy != view.strategy || !last->leaving.empty());

  coordinator::ViewChangeReport report;
  report.job = view.job;
  report.epoch = view.epoch;
  report.cause = run_.change.planned.value_or(ViewChangeCause::kLeave);
  // The gravest cause names the change.
  for (ViewChangeCause cause :
       {ViewChangeCause::kJoin, ViewChangeCause::kDrain, ViewChangeCause::kLeave,
        ViewChangeCause::kDeath, ViewChangeCause::kStart, ViewChangeCause::kRestart}) {
    for (const auto& [name, its_cause] : run_.change.workers) {
      if (its_cause == cause) report.cause = cause;
    }
  }
  if (run_.change.workers.empty() && switches) report.cause = ViewChangeCause::kSwitch;
  for (const auto& [name, cause] : run_.change.workers) report.workers.push_back(name);
  report.members = view.members;
  report.resume = view.resume;
  report.fresh_start = decision.fresh_start;
  report.hold = view.hold;
  report.reason = reason;
  report.started_at = std::min(run_.change.started_at, now_);
  report.decided_at = now_;

  const Step total_steps = Job()->plan.total_steps;
  const JobState state = view.hold && view.leaving.empty() && view.resume.step < total_steps
                             ? JobState::kWaiting
                             : JobState::kRunning;
  Note(Severity::kInfo, absl::StrFormat("view %d (%s): %s; %s", view.epoch, Name(report.cause),
                                        absl::StrJoin(view.members, " ",
                                                      [](std::string* out, const Member& member) {
                                                        out->append(member.name);
                                                      }),
                                        reason));
  const std::string obstacle = GroupsOf(view).obstacle;
  if (!obstacle.empty() && (last == nullptr || GroupsOf(*last).obstacle != obstacle)) {
    Note(Severity::kWarning, absl::StrFormat("view %d: %s", view.epoch, obstacle));
  }
  SetJobState(state, state == JobState::kWaiting ? ReasonToHold(view, oversize) : std::string());
  Emit(coordinator::ViewChanged{report});
  run_.report = std::move(report);
  run_.change = {};
  run_.pause_wanted = false;
  if (run_.pause_batch_armed) CancelTimer(TimerKind::kPauseBatch);
  run_.pause_batch_armed = false;
  run_.broken_links.clear();
  run_.broken_somewhere = false;
  if (run_.start_armed) CancelTimer(TimerKind::kStart);
  run_.start_armed = false;
  if (run_.drain_armed) CancelTimer(TimerKind::kDrainCheckpoint);
  run_.drain_armed = false;
  for (const Member& member : view.members) {
    Worker& worker = workers_.at(member.incarnation);
    worker.learn_source.reset();
    worker.learn_failed = false;
  }
  // `view` lives in `decision`, which goes last.
  Record(DecisionMade{std::move(decision)});
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
