// Jobs: one at a time, in order of submission; their checkpoints and their end.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/control/placement.h"
#include "server/core/coordinator_core.h"

namespace muster {

using coordinator::Severity;
using coordinator::TimerKind;

void CoordinatorCore::On(const coordinator::JobSubmitted& event) {
  if (!event.request_id.empty() && FindRequest(event.request_id).has_value()) return;
  if (persistent_.FindJob(event.plan.id) != nullptr) {
    Note(Severity::kError, absl::StrFormat("job id %s is taken", event.plan.id));
    return;
  }
  const auto unfinished =
      std::count_if(persistent_.jobs.begin(), persistent_.jobs.end(),
                    [](const PersistentJob& job) { return job.state == JobState::kQueued; });
  if (unfinished >= options_.max_jobs) {
    Emit(coordinator::JobChanged{
        event.plan.id, JobState::kFailed,
        absl::StrFormat("the queue holds its limit of %d jobs", options_.max_jobs)});
    return;
  }
  Record(JobAdded{event.plan, event.request_id});
  Emit(coordinator::JobChanged{event.plan.id, JobState::kQueued, ""});
}

void CoordinatorCore::On(const coordinator::JobCancelled& event) {
  const PersistentJob* job = persistent_.FindJob(event.job);
  if (job == nullptr || job->state != JobState::kQueued) return;
  EndJobNow(event.job, JobState::kCancelled, event.reason);
}

void CoordinatorCore::On(const coordinator::StrategyRequested& event) {
  const PersistentJob* job = persistent_.FindJob(event.job);
  const AskedStrategy asked{event.strategy, event.automatic};
  if (job == nullptr || job->state != JobState::kQueued || job->asked == asked) return;
  Record(StrategyChosen{event.job, event.strategy, job->switches_done, event.automatic});
  Note(Severity::kInfo,
       event.automatic
           ? absl::StrFormat("the strategy of job %s is chosen here from now on", event.job)
           : absl::StrFormat("job %s is to go on by %s", event.job, ToString(event.strategy)));
}

AskedStrategy CoordinatorCore::AskedAfter(Step step) const {
  const PersistentJob& job = *Job();
  AskedStrategy asked = job.asked;
  for (size_t i = job.switches_done; i < job.plan.switches.size(); ++i) {
    const StrategySwitch& change = job.plan.switches[i];
    if (change.after <= step) asked = {change.strategy, change.automatic};
  }
  return asked;
}

void CoordinatorCore::TakeSwitchesUpTo(Step step) {
  const PersistentJob& job = *Job();
  const AskedStrategy asked = AskedAfter(step);
  size_t done = job.switches_done;
  while (done < job.plan.switches.size() && job.plan.switches[done].after <= step) ++done;
  if (done == job.switches_done) return;
  Record(StrategyChosen{run_.job, asked.strategy, done, asked.automatic});
}

void CoordinatorCore::StartNextJob() {
  if (!run_.job.empty()) return;
  for (const PersistentJob& job : persistent_.jobs) {
    if (job.state != JobState::kQueued) continue;
    run_ = Run{};
    run_.job = job.plan.id;
    if (job.decision.has_value()) {
      // A job of an earlier term goes on where it is.
      const View& view = job.decision->view;
      const bool waits = view.hold && view.resume.step < job.plan.total_steps;
      SetJobState(waits ? JobState::kWaiting : JobState::kRunning, "the coordinator was restarted");
    } else {
      SetJobState(job.branch > 0 ? JobState::kWaiting : JobState::kStarting, "waiting for workers");
    }
    return;
  }
}

void CoordinatorCore::SetJobState(JobState state, const std::string& reason) {
  if (run_.state == state && (run_.reason == reason || reason.empty())) return;
  run_.state = state;
  run_.reason = reason;
  Emit(coordinator::JobChanged{run_.job, state, reason});
}

void CoordinatorCore::EndJobNow(const JobId& id, JobState outcome, const std::string& reason) {
  const JobId job = id;
  if (job == run_.job) {
    CloseProposal();
    for (TimerKind kind : {TimerKind::kPauseBatch, TimerKind::kStart, TimerKind::kOrphan,
                           TimerKind::kDrainCheckpoint, TimerKind::kLinkWindow}) {
      CancelTimer(kind);
    }
    run_ = Run{};
    for (auto& [incarnation, worker] : workers_) {
      worker.learn_source.reset();
      worker.learn_failed = false;
    }
  }
  Record(JobEnded{job, outcome, reason});
  Emit(coordinator::JobChanged{job, outcome, reason});
  std::erase_if(shown_,
                [this](const auto& entry) { return persistent_.FindJob(entry.first) == nullptr; });
  changed_ = true;
}

// What a member of the view in force shows. Its stable steps survive whatever happens to it (rule
// 4).
void CoordinatorCore::ShowProgress(const WorkerStatus& status, MemberRole role) {
  const View* view = CurrentView();
  if (view == nullptr || status.job != run_.job || status.active_epoch != view->epoch) return;
  Shown& shown = shown_[run_.job];
  if (status.has_state && status.stable > shown.stable) {
    if (status.stable.branch > shown.stable.branch) shown.progress.reset();
    shown.stable = status.stable;
  }
  if (status.progress.has_value() && !shown.final_report.has_value() &&
      (!shown.progress.has_value() || status.progress->step > shown.progress->step ||
       (status.progress->step == shown.progress->step &&
        status.progress->test_accuracy > shown.progress->test_accuracy))) {
    shown.progress = status.progress;
  }
  if (!status.final_report.has_value()) return;
  // All workers report alike; parameter servers have never seen all parameters. Who gave the last
  // checkpoint its name, one of either, names it.
  std::string checkpoint = status.final_report->checkpoint;
  if (checkpoint.empty() && shown.final_report.has_value()) {
    checkpoint = shown.final_report->checkpoint;
  }
  if (role == MemberRole::kWorker || !shown.final_report.has_value()) {
    shown.final_report = status.final_report;
    // Its evaluation is of the last step, those shown before may be of an earlier one.
    if (role == MemberRole::kWorker) shown.progress = status.final_report->progress;
  }
  shown.final_report->checkpoint = std::move(checkpoint);
}

void CoordinatorCore::WatchFailures() {
  // Who counts: the members, and before there is a view those who are to form it. A learner that
  // fails is only not taken.
  const View* view = CurrentView();
  for (const auto& [incarnation, worker] : workers_) {
    if (!worker.status_known || worker.status.phase != WorkerPhase::kFailed ||
        worker.status.job != run_.job) {
      continue;
    }
    const bool counts = view != nullptr ? view->RankOf(incarnation) >= 0 : IsAsked(incarnation);
    if (!counts) continue;
    EndJobNow(run_.job, JobState::kFailed,
              absl::StrFormat("worker %s: %s", worker.self.name, worker.status.failure));
    return;
  }
}

// Whether members of the view in force say of all parts of a checkpoint that they are durable.
bool CoordinatorCore::AllPartsDurable(const CheckpointReport& first) const {
  if (first.part != 0) return false;
  std::set<int32_t> parts;
  for (const Member& member : CurrentView()->members) {
    const Worker* worker = Find(member.incarnation);
    if (worker == nullptr || !worker->status_known || worker->status.job != run_.job ||
        worker->status.active_epoch != CurrentView()->epoch) {
      continue;
    }
    const std::optional<CheckpointReport>& durable = worker->status.durable;
    if (durable.has_value() && durable->tag == first.tag && durable->path == first.path &&
        durable->parts == first.parts) {
      parts.insert(durable->part);
    }
  }
  return static_cast<int32_t>(parts.size()) == first.parts;
}

// Rule 15: only a member of the view in force reports what counts, on the branch in force, and
// nothing gets its name before all its parts are durable and the decision is persisted.
void CoordinatorCore::WatchCheckpoints() {
  const View* view = CurrentView();
  if (view == nullptr) return;
  for (const Member& member : view->members) {
    const Worker* worker = Find(member.incarnation);
    if (worker == nullptr || !worker->status_known) continue;
    const WorkerStatus& status = worker->status;
    if (status.job != run_.job) continue;
    const PersistentJob& job = *Job();
    const auto is_newer = [&](const CheckpointReport& report) {
      return report.tag.branch == CurrentView()->resume.branch &&
             (!job.newest_checkpoint.has_value() ||
              report.tag.step > job.newest_checkpoint->tag.step ||
              report.tag.branch > job.newest_checkpoint->tag.branch);
    };
    if (status.durable.has_value() && status.active_epoch == CurrentView()->epoch &&
        AllPartsDurable(*status.durable) && is_newer(*status.durable) &&
        job.decided_checkpoint != status.durable &&
        (!job.decided_checkpoint.has_value() ||
         job.decided_checkpoint->tag.branch < status.durable->tag.branch ||
         job.decided_checkpoint->tag.step <= status.durable->tag.step)) {
      Record(CheckpointDecided{run_.job, *status.durable});
    }
    if (status.committed.has_value() && job.decided_checkpoint == status.committed &&
        job.newest_checkpoint != status.committed) {
      Record(CheckpointNamed{run_.job, *status.committed});
      Note(Severity::kInfo, absl::StrFormat("checkpoint of step %d is in %s",
                                            status.committed->tag.step, status.committed->path));
      changed_ = true;
    }
  }
}

void CoordinatorCore::WatchEnd() {
  const std::optional<StateTag> tag = PausedTag();
  if (!tag.has_value() || tag->step < Job()->plan.total_steps) return;
  bool all_finished = true;
  for (const Member& member : CurrentView()->members) {
    all_finished = all_finished && Find(member.incarnation)->status.phase == WorkerPhase::kFinished;
  }
  if (all_finished) {
    EndJobNow(run_.job, JobState::kSucceeded, absl::StrFormat("%d steps", tag->step));
  } else if (Job()->sealed != tag) {
    Record(SealDecided{run_.job, *tag});
  }
}

PersistentJob* CoordinatorCore::Job() {
  return run_.job.empty() ? nullptr : persistent_.FindJob(run_.job);
}

const PersistentJob* CoordinatorCore::Job() const {
  return run_.job.empty() ? nullptr : persistent_.FindJob(run_.job);
}

JobInfo CoordinatorCore::Describe(const PersistentJob& job) const {
  JobInfo info;
  info.plan = job.plan;
  info.request_id = job.request_id;
  const bool running = job.plan.id == run_.job;
  info.state = running ? run_.state : job.state;
  info.reason = running ? run_.reason : job.reason;
  if (job.decision.has_value()) info.view = job.decision->view;
  if (const auto shown = shown_.find(job.plan.id); shown != shown_.end()) {
    info.stable_step = shown->second.stable.step;
    info.progress = shown->second.progress;
    info.final_report = shown->second.final_report;
  }
  info.newest_checkpoint = job.newest_checkpoint;
  info.strategy = job.asked;
  if (job.asked.automatic && info.view.has_value()) info.strategy.strategy = info.view->strategy;
  if (job.asked.automatic && running) {
    info.strategy_reason = run_.strategy_reason;
  } else if (running && info.view.has_value() && info.view->strategy.grouped()) {
    info.strategy_reason = GroupsOf(*info.view).obstacle;
  }
  return info;
}

std::vector<JobInfo> CoordinatorCore::Jobs() const {
  std::vector<JobInfo> jobs;
  for (const PersistentJob& job : persistent_.jobs) jobs.push_back(Describe(job));
  return jobs;
}

std::optional<JobInfo> CoordinatorCore::FindJob(const JobId& id) const {
  const PersistentJob* job = persistent_.FindJob(id);
  if (job == nullptr) return std::nullopt;
  return Describe(*job);
}

std::optional<JobId> CoordinatorCore::FindRequest(absl::string_view request_id) const {
  for (const PersistentJob& job : persistent_.jobs) {
    if (job.request_id == request_id) return job.plan.id;
  }
  return std::nullopt;
}

}  // namespace muster
