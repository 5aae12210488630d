#include "server/rpc/coordinator_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace muster {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;
using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;

struct CoordinatorMetrics::Impl {
  explicit Impl(prometheus::Registry& registry)
      : members(BuildGauge()
                    .Name("muster_coordinator_members")
                    .Help("Workers the coordinator knows.")
                    .Register(registry)),
        epoch(BuildGauge()
                  .Name("muster_coordinator_epoch")
                  .Help("Epoch of the newest view, 0 before the first.")
                  .Register(registry)
                  .Add({})),
        term(BuildGauge()
                 .Name("muster_coordinator_term")
                 .Help("Number of the coordinator's start.")
                 .Register(registry)
                 .Add({})),
        jobs(BuildGauge()
                 .Name("muster_coordinator_jobs")
                 .Help("Jobs remembered, by state.")
                 .Register(registry)),
        view_changes(BuildCounter()
                         .Name("muster_coordinator_view_changes_total")
                         .Help("Views decided, by cause.")
                         .Register(registry)),
        view_change_seconds(BuildHistogram()
                                .Name("muster_coordinator_view_change_seconds")
                                .Help("From the cause to the first step applied after it.")
                                .Register(registry)),
        directives(BuildCounter()
                       .Name("muster_coordinator_directives_total")
                       .Help("Directives sent, for the first time or again.")
                       .Register(registry)),
        sessions_closed(BuildCounter()
                            .Name("muster_coordinator_sessions_closed_total")
                            .Help("Worker sessions that ended, by reason.")
                            .Register(registry)),
        job_step(BuildGauge()
                     .Name("muster_job_step")
                     .Help("Newest stable step of the running job.")
                     .Register(registry)),
        job_loss(BuildGauge()
                     .Name("muster_job_loss")
                     .Help("Mean training loss of that step.")
                     .Register(registry)),
        job_samples(BuildGauge()
                        .Name("muster_job_samples_per_second")
                        .Help("Samples trained per second by the whole fleet.")
                        .Register(registry)),
        job_paths(BuildGauge()
                      .Name("muster_job_communication_path_info")
                      .Help("Ranks of the job's view that communicate so.")
                      .Register(registry)),
        job_straggler(BuildGauge()
                          .Name("muster_job_straggler_seconds")
                          .Help("How long the worker has held up others now.")
                          .Register(registry)),
        job_straggler_total(BuildCounter()
                                .Name("muster_job_straggler_seconds_total")
                                .Help("How long the worker has held up others in all.")
                                .Register(registry)) {}

  struct JobGauges {
    JobId id;
    Gauge* step = nullptr;
    Gauge* loss = nullptr;
    Gauge* samples = nullptr;
  };

  // Series of an ended job are removed, so that they do not grow with the number of jobs.
  void DropJob() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (!job) return;
    job_step.Remove(job->step);
    job_loss.Remove(job->loss);
    job_samples.Remove(job->samples);
    job.reset();
  }

  // Removes what a family shows of one job.
  template <typename Metric>
  static void Clear(Family<Metric>& family, std::set<Metric*>& shown) {
    for (Metric* metric : shown) family.Remove(metric);
    shown.clear();
  }

  Family<Gauge>& members;
  Gauge& epoch;
  Gauge& term;
  Family<Gauge>& jobs;
  Family<Counter>& view_changes;
  Family<Histogram>& view_change_seconds;
  Family<Counter>& directives;
  Family<Counter>& sessions_closed;
  Family<Gauge>& job_step;
  Family<Gauge>& job_loss;
  Family<Gauge>& job_samples;
  Family<Gauge>& job_paths;
  Family<Gauge>& job_straggler;
  Family<Counter>& job_straggler_total;
  absl::Mutex mutex;
  JobId paths_job ABSL_GUARDED_BY(mutex);
  std::set<Gauge*> shown_paths ABSL_GUARDED_BY(mutex);
  std::set<Gauge*> shown_stragglers ABSL_GUARDED_BY(mutex);
  JobId counted_job ABSL_GUARDED_BY(mutex);
  std::set<Counter*> counted_stragglers ABSL_GUARDED_BY(mutex);
  std::optional<JobGauges> job ABSL_GUARDED_BY(mutex);
};

CoordinatorMetrics::CoordinatorMetrics(prometheus::Registry& registry)
    : impl_(std::make_unique<Impl>(registry)) {}
CoordinatorMetrics::~CoordinatorMetrics() = default;

void CoordinatorMetrics::Refresh(const CoordinatorCore& core) {
  int attached = 0;
  int detached = 0;
  for (const MemberInfo& member : core.Members()) ++(member.attached ? attached : detached);
  impl_->members.Add({{"state", "attached"}}).Set(attached);
  impl_->members.Add({{"state", "detached"}}).Set(detached);
  impl_->term.Set(static_cast<double>(core.term()));

  std::array<int, 8> by_state = {};
  std::optional<JobInfo> running;
  for (JobInfo& job : core.Jobs()) {
    ++by_state[static_cast<size_t>(job.state)];
    // A view stays the newest when it or its job has ended.
    if (job.view) {
      impl_->epoch.Set(std::max(impl_->epoch.Value(), static_cast<double>(job.view->epoch)));
    }
    const bool shows = job.state == JobState::kRunning || job.state == JobState::kWaiting;
    if (shows && job.progress) running = std::move(job);
  }
  for (int state = 1; state <= 7; ++state) {
    impl_->jobs.Add({{"state", Name(static_cast<JobState>(state))}}).Set(by_state[state]);
  }

  absl::MutexLock lock(&impl_->mutex);
  if (!running || (impl_->job && impl_->job->id != running->plan.id)) impl_->DropJob();
  if (!running) return;
  if (!impl_->job) {
    const prometheus::Labels labels = {{"job", running->plan.id}};
    impl_->job = Impl::JobGauges{.id = running->plan.id,
                                 .step = &impl_->job_step.Add(labels),
                                 .loss = &impl_->job_loss.Add(labels),
                                 .samples = &impl_->job_samples.Add(labels)};
  }
  impl_->job->step->Set(static_cast<double>(running->progress->step));
  impl_->job->loss->Set(running->progress->loss);
  impl_->job->samples->Set(running->progress->samples_per_second);
}

void CoordinatorMetrics::CountViewChange(ViewChangeCause cause) {
  impl_->view_changes.Add({{"cause", Name(cause)}}).Increment();
}

void CoordinatorMetrics::ObserveViewChange(ViewChangeCause cause, double seconds) {
  const Histogram::BucketBoundaries bounds = {0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30};
  impl_->view_change_seconds.Add({{"cause", Name(cause)}}, bounds).Observe(seconds);
}

void CoordinatorMetrics::CountDirective(bool again) {
  impl_->directives.Add({{"kind", again ? "again" : "first"}}).Increment();
}

void CoordinatorMetrics::SetPaths(
    const JobId& job, const std::map<Rank, std::shared_ptr<const CommunicationPath>>& paths) {
  absl::MutexLock lock(&impl_->mutex);
  if (paths.empty() && job != impl_->paths_job) return;  // another one is over
  impl_->paths_job = job;
  Impl::Clear(impl_->job_paths, impl_->shown_paths);
  for (const auto& [rank, path] : paths) {
    Gauge& gauge = impl_->job_paths.Add(
        {{"job", job}, {"transport", path->transport}, {"provider", path->provider}});
    gauge.Increment();
    impl_->shown_paths.insert(&gauge);
  }
}

void CoordinatorMetrics::SetStragglers(const JobId& job, const std::vector<Straggler>& stragglers) {
  absl::MutexLock lock(&impl_->mutex);
  Impl::Clear(impl_->job_straggler, impl_->shown_stragglers);
  for (const Straggler& straggler : stragglers) {
    Gauge& gauge = impl_->job_straggler.Add(
        {{"job", job}, {"rank", absl::StrCat(straggler.rank)}, {"worker", straggler.worker}});
    gauge.Set(absl::ToDoubleSeconds(straggler.held_up));
    impl_->shown_stragglers.insert(&gauge);
  }
}

void CoordinatorMetrics::CountStraggler(const JobId& job, const WorkerName& worker,
                                        double seconds) {
  absl::MutexLock lock(&impl_->mutex);
  if (job != impl_->counted_job) {
    Impl::Clear(impl_->job_straggler_total, impl_->counted_stragglers);
    impl_->counted_job = job;
  }
  Counter& counter = impl_->job_straggler_total.Add({{"job", job}, {"worker", worker}});
  counter.Increment(seconds);
  impl_->counted_stragglers.insert(&counter);
}

void CoordinatorMetrics::CountSessionClosed(absl::string_view reason) {
  impl_->sessions_closed.Add({{"reason", std::string(reason)}}).Increment();
}

}  // namespace muster
