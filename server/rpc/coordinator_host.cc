#include "server/rpc/coordinator_host.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "proto/convert/control.h"

namespace muster {
namespace {

// The timer thread looks at least this often, so that time goes on (FleetClock).
constexpr absl::Duration kTick = absl::Milliseconds(100);

absl::Duration Monotonic() {
  return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace

absl::StatusOr<std::shared_ptr<CoordinatorHost>> CoordinatorHost::Start(
    CoordinatorHostOptions options, RecordStore& store, FileSystem& files, Logger& logger,
    CoordinatorMetrics* metrics) {
  PersistentLimits limits;
  limits.evictions = static_cast<size_t>(options.core.max_remembered_evictions);
  limits.jobs = static_cast<size_t>(options.core.max_jobs);
  MUSTER_ASSIGN_OR_RETURN(PersistentState state, store.Load(limits));
  std::shared_ptr<CoordinatorHost> host(
      new CoordinatorHost(std::move(options), store, files, logger, metrics, std::move(state)));
  absl::Status loaded = host->LoadJobs();
  if (!loaded.ok()) {
    absl::MutexLock lock(&host->mutex_);
    host->stopped_ = true;
    return loaded;
  }
  {
    absl::MutexLock lock(&host->mutex_);
    host->Obey(host->core_.Start(host->Now()));
    host->NotifyChanged();
  }
  host->timer_thread_ = std::thread([raw = host.get()] { raw->RunTimers(); });
  return host;
}

CoordinatorHost::CoordinatorHost(CoordinatorHostOptions options, RecordStore& store,
                                 FileSystem& files, Logger& logger, CoordinatorMetrics* metrics,
                                 PersistentState state)
    : options_(std::move(options)),
      store_(store),
      files_(files),
      logger_(logger),
      metrics_(metrics),
      clock_(absl::Now(), Monotonic()),
      core_(options_.core, std::move(state)) {}

CoordinatorHost::~CoordinatorHost() {
  absl::MutexLock lock(&mutex_);
  MUSTER_CHECK(stopped_) << "a host must be stopped before it is destroyed";
}

absl::Status CoordinatorHost::LoadJobs() {
  MUSTER_ASSIGN_OR_RETURN(auto descriptions, store_.LoadDescriptions());
  absl::MutexLock lock(&mutex_);
  for (const PersistentJob& job : core_.persistent().jobs) {
    const auto found = descriptions.find(job.plan.id);
    v1::JobDescription submitted;
    v1::JobDescription resolved;
    if (found == descriptions.end() || !submitted.ParseFromString(found->second.submitted) ||
        !resolved.ParseFromString(found->second.resolved)) {
      return absl::DataLossError(absl::StrFormat(
          "the coordinator's store has no readable description of job %s", job.plan.id));
    }
    jobs_.Add(job.plan.id, std::move(submitted), std::move(resolved),
              absl::FromUnixMillis(found->second.submitted_at_unix_ms));
  }
  return absl::OkStatus();
}

void CoordinatorHost::Stop() {
  std::map<Incarnation, Session> sessions;
  std::multimap<JobId, std::shared_ptr<JobWatcher>> watchers;
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
    wake_ = true;
    sessions.swap(sessions_);
    watchers.swap(watchers_);
    for (auto& [incarnation, session] : sessions) {
      session.link->Close(absl::UnavailableError("the coordinator is shutting down"));
    }
    for (auto& [job, watcher] : watchers) watcher->OnShutdown();
  }
  if (timer_thread_.joinable()) timer_thread_.join();
}

// ---- time --------------------------------------------------------------------------------------

absl::Time CoordinatorHost::Now() { return clock_.Observe(Monotonic()); }

absl::Time CoordinatorHost::OnTheWall(absl::Time moment) {
  return moment == absl::InfinitePast() ? moment : absl::Now() - (Now() - moment);
}

void CoordinatorHost::RunTimers() {
  absl::MutexLock lock(&mutex_);
  absl::Time next_progress = absl::InfinitePast();
  absl::Time next_metrics = absl::InfinitePast();
  while (!stopped_) {
    const absl::Time now = Now();
    while (!stopped_) {
      const std::optional<coordinator::TimerId> due = timers_.PopDue(now);
      if (!due) break;
      Handle(coordinator::TimerFired{*due});
    }
    if (now >= next_progress) {
      next_progress = now + options_.progress_interval;
      for (const JobId& id : std::exchange(progressed_, {})) NotifyWatchers(id);
    }
    WatchStragglers(now);
    NotifyChanged();
    if (metrics_ != nullptr && now >= next_metrics) {
      next_metrics = now + options_.metrics_interval;
      metrics_->Refresh(core_);
    }
    wake_ = false;
    const absl::Duration wait = std::clamp(timers_.NextDue() - Now(), absl::ZeroDuration(), kTick);
    mutex_.AwaitWithTimeout(absl::Condition(&wake_), wait);
  }
}

// ---- events and actions ------------------------------------------------------------------------

void CoordinatorHost::Handle(const coordinator::Event& event) {
  if (stopped_) return;
  Obey(core_.Handle(event, Now()));
  NotifyChanged();
}

void CoordinatorHost::Obey(const coordinator::Actions& actions) {
  for (const coordinator::Action& action : actions) {
    if (stopped_) return;
    if (const auto* persist = std::get_if<coordinator::Persist>(&action)) {
      if (!Write(persist->record)) return;
    } else if (const auto* send = std::get_if<coordinator::SendDirective>(&action)) {
      Send(*send);
    } else if (const auto* close = std::get_if<coordinator::CloseSession>(&action)) {
      const auto found = sessions_.find(close->worker);
      if (found != sessions_.end()) found->second.link->Close(absl::AbortedError(close->reason));
    } else if (const auto* set = std::get_if<coordinator::SetTimer>(&action)) {
      wake_ = wake_ || set->at < timers_.NextDue();
      timers_.Set(set->id, set->at);
    } else if (const auto* cancel = std::get_if<coordinator::CancelTimer>(&action)) {
      timers_.Cancel(cancel->id);
    } else if (const auto* job = std::get_if<coordinator::JobChanged>(&action)) {
      Take(*job);
    } else if (const auto* view = std::get_if<coordinator::ViewChanged>(&action)) {
      Take(view->report);
    } else {
      const auto& log = std::get<coordinator::Log>(action);
      const LogLevel level = log.severity == coordinator::Severity::kInfo      ? LogLevel::kInfo
                             : log.severity == coordinator::Severity::kWarning ? LogLevel::kWarning
                                                                               : LogLevel::kError;
      logger_.Log(level, "fleet", log.text, {});
    }
  }
}

bool CoordinatorHost::Write(const PersistentRecord& record) {
  absl::Status written = store_.Append(record);
  if (written.ok() &&
      (std::holds_alternative<JobAdded>(record) || std::holds_alternative<JobEnded>(record))) {
    // The core forgets the oldest ended jobs; so does everybody else.
    for (const JobId& gone : jobs_.Prune(core_.persistent())) {
      written.Update(store_.DropDescription(gone));
      shown_step_.erase(gone);
    }
  }
  if (!written.ok()) Fail(written);
  return written.ok();
}

void CoordinatorHost::Fail(const absl::Status& status) {
  logger_.Error("store_failed",
                absl::StrCat("a decision could not be written down, so the coordinator stops: ",
                             status.message()));
  stopped_ = true;
  wake_ = true;
  if (options_.on_fatal) options_.on_fatal(status);
}

void CoordinatorHost::Send(const coordinator::SendDirective& action) {
  const auto found = sessions_.find(action.to);
  if (found == sessions_.end()) return;
  Session& session = found->second;
  auto response = std::make_shared<v1::SessionResponse>(ToProto(core_.term(), action.directive));
  if (const JobId* job = JobNamedBy(action.directive)) {
    if (const JobEntry* entry = jobs_.Find(*job)) *response->mutable_job() = *entry->resolved;
  }
  const auto last = session.last.find(action.directive.index());
  const bool again = last != session.last.end() && last->second == action.directive;
  session.last.insert_or_assign(action.directive.index(), action.directive);
  if (metrics_ != nullptr) metrics_->CountDirective(again);
  session.link->Send(std::move(response));
}

void CoordinatorHost::Take(const coordinator::JobChanged& change) {
  logger_.Info("job_state",
               absl::StrCat("job ", change.job, " is ", Name(change.state),
                            change.reason.empty() ? "" : ": ", change.reason),
               {{"job", change.job}, {"state", Name(change.state)}, {"reason", change.reason}});
  changed_.insert(change.job);
  JobEntry* entry = jobs_.Find(change.job);
  if (change.state < JobState::kSucceeded) return;
  if (entry != nullptr) entry->ended_at = absl::Now();
  if (metrics_ != nullptr) metrics_->SetPaths(change.job, {});
  if (change.job == logged_job_) SetLogContext("", 0, 0);
  // Those behind it wait for others now.
  for (const PersistentJob& job : core_.persistent().jobs) {
    if (job.state < JobState::kSucceeded) changed_.insert(job.plan.id);
  }
}

void CoordinatorHost::Take(const coordinator::ViewChangeReport& report) {
  changed_.insert(report.job);
  JobEntry* entry = jobs_.Find(report.job);
  if (entry == nullptr) return;
  coordinator::ViewChangeReport shown = report;
  const absl::Duration shift = OnTheWall(report.started_at) - report.started_at;
  shown.started_at += shift;
  shown.first_step_at += shift;
  const bool first = JobTable::TakeReport(*entry, shown);
  const std::string workers = absl::StrJoin(report.workers, ", ");
  if (first) {
    SetLogContext(report.job, report.epoch, report.resume.step);
    logger_.Info("view_decided",
                 absl::StrFormat("epoch %d (%s): %d members, resume at step %d%s: %s", report.epoch,
                                 Name(report.cause), report.members.size(), report.resume.step,
                                 report.hold ? ", on hold" : "", report.reason),
                 {{"cause", Name(report.cause)},
                  {"workers", workers},
                  {"world_size", static_cast<int64_t>(report.members.size())}});
    if (metrics_ != nullptr) metrics_->CountViewChange(report.cause);
  }
  if (report.first_step_at != absl::InfinitePast()) {
    const absl::Duration took = report.first_step_at - report.started_at;
    logger_.Info("view_stepped",
                 absl::StrFormat("epoch %d: first step %.0f ms after the %s", report.epoch,
                                 absl::ToDoubleMilliseconds(took), Name(report.cause)),
                 {{"cause", Name(report.cause)},
                  {"workers", workers},
                  {"duration_ms", absl::ToDoubleMilliseconds(took)}});
    if (metrics_ != nullptr) {
      metrics_->ObserveViewChange(report.cause, absl::ToDoubleSeconds(took));
    }
  }
}

void CoordinatorHost::SetLogContext(const JobId& job, Epoch epoch, Step step) {
  logged_job_ = job;
  logged_epoch_ = epoch;
  logged_step_ = step;
  logger_.SetContext(-1, epoch, step);
}

void CoordinatorHost::NoteStep(const WorkerStatus& status) {
  if (!status.progress || status.job != logged_job_ || status.job.empty()) return;
  // After a rollback, words of the view before may still come in.
  if (status.active_epoch != logged_epoch_ || status.progress->step <= logged_step_) return;
  SetLogContext(status.job, logged_epoch_, status.progress->step);
}

void CoordinatorHost::NotePath(Incarnation worker, const WorkerStatus& status) {
  const View* view = core_.CurrentView();
  if (!status.path.has_value() || view == nullptr || status.active_epoch != view->epoch) return;
  const Rank rank = view->RankOf(worker);
  JobEntry* entry = jobs_.Find(view->job);
  if (rank < 0 || entry == nullptr) return;
  if (!JobTable::TakePath(*entry, view->epoch, rank, *status.path)) return;
  changed_.insert(view->job);
  if (metrics_ != nullptr) metrics_->SetPaths(view->job, entry->paths);
  if (rank != 0) return;
  logger_.Info("communication_path",
               absl::StrFormat("epoch %d: %s", view->epoch, muster::Describe(*status.path)),
               {{"job", view->job},
                {"transport", status.path->transport},
                {"provider", status.path->provider}});
}

void CoordinatorHost::NoteFailedCheckpoint(Incarnation worker, const WorkerStatus& status) {
  const View* view = core_.CurrentView();
  if (view == nullptr || status.job != view->job) return;
  const Rank rank = view->RankOf(worker);
  JobEntry* entry = jobs_.Find(view->job);
  if (rank < 0 || entry == nullptr) return;
  const WorkerName& name = view->members[static_cast<size_t>(rank)].name;
  const std::optional<CheckpointFailure>& failure = status.checkpoint_failure;
  const JobTable::CheckpointNews news = JobTable::TakeCheckpointFailure(*entry, name, failure);
  if (news == JobTable::CheckpointNews::kNone) return;
  changed_.insert(view->job);
  if (news != JobTable::CheckpointNews::kNewlyFailed) return;
  logger_.Warning("checkpoint_failed",
                  absl::StrFormat("the checkpoint of step %d failed on %s: %s", failure->tag.step,
                                  name, TextForPeople(failure->error, kMaxTextBytes)),
                  {{"job", view->job}, {"worker", name}, {"checkpoint_step", failure->tag.step}});
}

void CoordinatorHost::WatchStragglers(absl::Time now) {
  const absl::Duration since_last = now - std::exchange(last_look_, now);
  if (!std::exchange(late_waits_, false) && stragglers_.current().empty()) return;
  const View* view = core_.CurrentView();
  if (view != nullptr) straggling_job_ = view->job;
  StragglerOptions options;
  options.silent_after = std::max(3 * core_.options().heartbeat, absl::Milliseconds(300));
  const std::vector<StragglerWatch::Event> events =
      stragglers_.Update(FindStragglers(core_.RankReports(), options, now), now);
  std::set<WorkerName> begun;
  for (const StragglerWatch::Event& event : events) {
    changed_.insert(straggling_job_);
    const Straggler& straggler = event.straggler;
    if (!event.over) begun.insert(straggler.worker);
    if (!event.has_line) continue;
    if (event.over) {
      logger_.Info(
          "straggler_over",
          absl::StrFormat("%s (rank %d) no longer holds up others, after %.1f s", straggler.worker,
                          straggler.rank, absl::ToDoubleSeconds(event.lasted)),
          {{"worker", straggler.worker},
           {"straggler_rank", straggler.rank},
           {"seconds", absl::ToDoubleSeconds(event.lasted)}});
      continue;
    }
    logger_.Warning("straggler",
                    absl::StrCat(muster::Describe(straggler),
                                 event.without_line == 0
                                     ? ""
                                     : absl::StrCat("; it did ", event.without_line,
                                                    " times more since the last such line")),
                    {{"worker", straggler.worker},
                     {"straggler_rank", straggler.rank},
                     {"operation", straggler.operation},
                     {"bucket", straggler.label},
                     {"waiting_step", straggler.step},
                     {"held_up_ms", absl::ToDoubleMilliseconds(straggler.held_up)},
                     {"waiting", absl::StrJoin(straggler.waiting, ", ")}});
  }
  if (metrics_ == nullptr) return;
  for (const Straggler& straggler : stragglers_.current()) {
    const bool begins = begun.contains(straggler.worker);
    metrics_->CountStraggler(straggling_job_, straggler.worker,
                             absl::ToDoubleSeconds(begins ? straggler.held_up : since_last));
  }
  metrics_->SetStragglers(straggling_job_, stragglers_.current());
}

// ---- sessions ----------------------------------------------------------------------------------

bool CoordinatorHost::IsNewest(Incarnation worker, const SessionLink* link) const {
  const auto found = sessions_.find(worker);
  return found != sessions_.end() && found->second.link.get() == link;
}

void CoordinatorHost::OpenSession(const Hello& hello, std::shared_ptr<SessionLink> link) {
  absl::MutexLock lock(&mutex_);
  if (stopped_) {
    link->Close(absl::UnavailableError("the coordinator is shutting down"));
    return;
  }
  Session& session = sessions_[hello.self.incarnation];
  if (session.link != nullptr) {
    session.link->Close(absl::AbortedError("replaced by a newer session of the same worker"));
  }
  session = Session{.link = std::move(link), .last = {}};
  Handle(coordinator::SessionOpened{hello});
}

void CoordinatorHost::OnStatus(Incarnation worker, const SessionLink* link, WorkerStatus status) {
  absl::MutexLock lock(&mutex_);
  if (!IsNewest(worker, link)) return;
  // Watchers hear of a step once per step, not once per worker.
  if (status.progress && jobs_.Find(status.job) != nullptr) {
    Step& shown = shown_step_[status.job];
    if (status.progress->step > shown || status.final_report) {
      shown = status.progress->step;
      progressed_.insert(status.job);
    }
  }
  late_waits_ = late_waits_ || (status.wait.has_value() && status.wait->late);
  NoteStep(status);
  NotePath(worker, status);
  NoteFailedCheckpoint(worker, status);
  Handle(coordinator::StatusReceived{worker, std::move(status)});
}

void CoordinatorHost::OnSuspicion(Incarnation worker, const SessionLink* link,
                                  Suspicion suspicion) {
  absl::MutexLock lock(&mutex_);
  if (!IsNewest(worker, link)) return;
  Handle(coordinator::SuspicionReceived{worker, std::move(suspicion)});
}

void CoordinatorHost::SessionEnded(Incarnation worker, const SessionLink* link,
                                   absl::string_view reason) {
  std::shared_ptr<SessionLink> goes;  // after the lock
  absl::MutexLock lock(&mutex_);
  if (metrics_ != nullptr) metrics_->CountSessionClosed(reason);
  if (!IsNewest(worker, link)) return;
  goes = std::move(sessions_[worker].link);
  sessions_.erase(worker);
  Handle(coordinator::SessionClosed{worker});
}

}  // namespace muster
