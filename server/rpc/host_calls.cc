// What clients ask the coordinator.
#include <algorithm>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "google/protobuf/util/message_differencer.h"
#include "proto/convert/control.h"
#include "proto/convert/field.h"
#include "proto/convert/job.h"
#include "proto/convert/strategy.h"
#include "server/rpc/coordinator_host.h"
#include "server/rpc/job_files.h"

namespace muster {
namespace {

using google::protobuf::util::MessageDifferencer;

constexpr int kMaxPageSize = 100;

absl::Status NoSuchJob(const JobId& id) {
  return absl::NotFoundError(absl::StrFormat(
      "there is no job \"%s\"; ended jobs are forgotten after a while, and all jobs "
      "when the coordinator restarts; `muster status` shows those remembered",
      TextForPeople(id, kMaxIdBytes)));
}

}  // namespace

absl::StatusOr<v1::Job> CoordinatorHost::Describe(const JobId& id) const {
  const JobEntry* entry = jobs_.Find(id);
  const std::optional<JobInfo> info = core_.FindJob(id);
  if (entry == nullptr || !info) return NoSuchJob(id);
  v1::Job job = ToPublicJob(*info, *entry);
  if (info->state == JobState::kQueued && info->reason.empty()) job.set_reason(WhyQueued(id));
  if (id == straggling_job_) {
    for (const Straggler& straggler : stragglers_.current()) {
      *job.add_stragglers() = ToPublicStraggler(straggler);
    }
  }
  return job;
}

std::string CoordinatorHost::WhyQueued(const JobId& id) const {
  // In order of submission; the first that has not ended is the one that runs.
  JobId first;
  int others = 0;
  for (const PersistentJob& job : core_.persistent().jobs) {
    if (job.plan.id == id) break;
    if (job.state >= JobState::kSucceeded) continue;
    if (first.empty()) {
      first = job.plan.id;
    } else {
      ++others;
    }
  }
  if (first.empty()) return "";
  return absl::StrCat("waits for the end of ", first,
                      others == 0   ? ""
                      : others == 1 ? " and of 1 job after it"
                                    : absl::StrCat(" and of ", others, " jobs after it"));
}

bool CoordinatorHost::HasEnded(const JobId& id) const {
  return core_.FindJob(id)->state >= JobState::kSucceeded;
}

std::optional<absl::StatusOr<v1::Job>> CoordinatorHost::FindSubmitted(
    const v1::SubmitJobRequest& request) const {
  if (request.request_id().empty()) return std::nullopt;
  const std::optional<JobId> id = core_.FindRequest(request.request_id());
  if (!id) return std::nullopt;
  const JobEntry* entry = jobs_.Find(*id);
  if (entry != nullptr && !MessageDifferencer::Equals(entry->submitted, request.description())) {
    return absl::AlreadyExistsError(absl::StrFormat(
        "request_id \"%s\" has made job %s, whose description is another one; take a request_id of "
        "its own for each job, and repeat one only with the same description",
        TextForPeople(request.request_id(), kMaxIdBytes), *id));
  }
  return Describe(*id);
}

absl::StatusOr<v1::Job> CoordinatorHost::SubmitJob(const v1::SubmitJobRequest& request) {
  MUSTER_RETURN_IF_ERROR(CheckText("request_id", request.request_id(), kMaxIdBytes));
  {
    absl::MutexLock lock(&mutex_);
    if (auto known = FindSubmitted(request)) return *std::move(known);
  }
  MUSTER_ASSIGN_OR_RETURN(const JobSpec spec, JobSpecFromProto(request.description()));
  if (spec.workers.min > options_.core.max_workers) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "workers.min: must be at most the coordinator's limit of %d workers, got %d",
        options_.core.max_workers, spec.workers.min));
  }
  MUSTER_ASSIGN_OR_RETURN(const Step total_steps, ResolveTotalSteps(files_, spec));
  v1::JobDescription for_workers = request.description();
  for_workers.mutable_training()->set_steps(total_steps);
  for_workers.mutable_training()->clear_epochs();

  absl::MutexLock lock(&mutex_);
  if (stopped_) return absl::UnavailableError("the coordinator is shutting down");
  if (auto known = FindSubmitted(request)) return *std::move(known);
  const auto& jobs = core_.persistent().jobs;
  const auto unfinished = std::count_if(jobs.begin(), jobs.end(), [](const PersistentJob& job) {
    return job.state < JobState::kSucceeded;
  });
  if (unfinished >= options_.core.max_jobs) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("the queue holds its limit of %d jobs; wait for one to end, or cancel one",
                        options_.core.max_jobs));
  }
  JobPlan plan;
  absl::BitGen random;
  do {
    plan.id = absl::StrFormat("%s-%08x", spec.name, absl::Uniform<uint32_t>(random));
  } while (core_.FindJob(plan.id).has_value());
  plan.min_workers = spec.workers.min;
  plan.start_workers = spec.workers.start;
  plan.start_timeout = absl::Milliseconds(spec.workers.start_timeout_ms);
  plan.max_workers = spec.workers.max;
  plan.total_steps = total_steps;
  plan.strategy = spec.strategy;
  plan.automatic = spec.automatic;
  plan.switches = spec.switches;
  // The residuals of gradients that are sent in part.
  plan.workers_hand_on = spec.communication.compression.kind == GradientCompression::Kind::kTopK;

  const absl::Time now = absl::Now();
  absl::Status stored = store_.PutDescription(
      plan.id, StoredDescription{.submitted = request.description().SerializeAsString(),
                                 .resolved = for_workers.SerializeAsString(),
                                 .submitted_at_unix_ms = absl::ToUnixMillis(now)});
  if (!stored.ok()) {
    Fail(stored);
    return absl::UnavailableError("the coordinator cannot write the job down");
  }
  jobs_.Add(plan.id, request.description(), std::move(for_workers), now);
  Handle(coordinator::JobSubmitted{plan, request.request_id()});
  return Describe(plan.id);
}

absl::StatusOr<v1::Job> CoordinatorHost::GetJob(const JobId& id) {
  absl::MutexLock lock(&mutex_);
  return Describe(id);
}

absl::StatusOr<v1::ListJobsResponse> CoordinatorHost::ListJobs(const v1::ListJobsRequest& request) {
  if (request.page_size() < 0) {
    return FieldError("page_size", "0 or more", absl::StrCat(request.page_size()));
  }
  const int page_size =
      request.page_size() == 0 ? kMaxPageSize : std::min(request.page_size(), kMaxPageSize);
  // The token is the number of the last job shown; jobs below it follow.
  uint64_t below = UINT64_MAX;
  if (!request.page_token().empty() &&
      (!absl::SimpleAtoi(request.page_token(), &below) || below == 0)) {
    return FieldError("page_token", "a next_page_token of ListJobs",
                      absl::StrCat("\"", TextForPeople(request.page_token(), 40), "\""));
  }
  v1::ListJobsResponse response;
  size_t bytes = 0;
  uint64_t last = 0;
  absl::MutexLock lock(&mutex_);
  for (const auto& [number, id] : jobs_.by_number()) {
    if (number >= below) continue;
    if (response.jobs_size() >= page_size || bytes > options_.max_page_bytes) {
      response.set_next_page_token(absl::StrCat(last));
      break;
    }
    MUSTER_ASSIGN_OR_RETURN(*response.add_jobs(), Describe(id));
    bytes += response.jobs(response.jobs_size() - 1).ByteSizeLong();
    last = number;
  }
  return response;
}

absl::StatusOr<v1::SwitchJobResponse> CoordinatorHost::SwitchJob(
    const v1::SwitchJobRequest& request) {
  absl::MutexLock lock(&mutex_);
  if (stopped_) return absl::UnavailableError("the coordinator is shutting down");
  v1::SwitchJobResponse response;
  MUSTER_ASSIGN_OR_RETURN(*response.mutable_job(), Describe(request.job_id()));
  if (HasEnded(request.job_id())) {
    return absl::FailedPreconditionError(
        absl::StrCat(request.job_id(), " has already ended; nothing was changed"));
  }
  if (!request.has_strategy()) return MissingField("strategy");
  MUSTER_ASSIGN_OR_RETURN(const JobSpec spec,
                          JobSpecFromProto(*jobs_.Find(request.job_id())->resolved));
  const Strategy defaults{.replicas = spec.strategy.replicas,
                          .algorithm = spec.communication.algorithm,
                          .transport = spec.communication.transport};
  MUSTER_ASSIGN_OR_RETURN(const AskedStrategy asked,
                          AskedStrategyFromProto(request.strategy(), defaults, "strategy"));
  MUSTER_RETURN_IF_ERROR(CheckStrategy(spec, asked.strategy, "strategy"));
  if (!asked.automatic) {
    MUSTER_RETURN_IF_ERROR(
        Annotate(core_.CheckStrategyFits(request.job_id(), asked.strategy), "strategy"));
  }
  Handle(coordinator::StrategyRequested{request.job_id(), asked.strategy, asked.automatic});
  MUSTER_ASSIGN_OR_RETURN(*response.mutable_job(), Describe(request.job_id()));
  return response;
}

absl::StatusOr<v1::ExplainStrategyResponse> CoordinatorHost::ExplainStrategy(const JobId& id) {
  absl::MutexLock lock(&mutex_);
  const std::optional<JobInfo> info = core_.FindJob(id);
  if (!info) return NoSuchJob(id);
  if (HasEnded(id)) {
    return absl::FailedPreconditionError(
        absl::StrCat(id, " has already ended; there is nothing to choose"));
  }
  MUSTER_ASSIGN_OR_RETURN(const StrategyChoice choice, core_.ExplainStrategy(id));
  return ToPublicChoice(choice, *info);
}

absl::StatusOr<v1::CancelJobResponse> CoordinatorHost::CancelJob(
    const v1::CancelJobRequest& request) {
  absl::MutexLock lock(&mutex_);
  if (stopped_) return absl::UnavailableError("the coordinator is shutting down");
  v1::CancelJobResponse response;
  MUSTER_ASSIGN_OR_RETURN(*response.mutable_job(), Describe(request.job_id()));
  if (HasEnded(request.job_id())) {
    response.set_had_ended(true);
    return response;
  }
  const std::string reason = request.reason().empty()
                                 ? "cancelled by a client"
                                 : TextForPeople(request.reason(), kMaxTextBytes);
  Handle(coordinator::JobCancelled{request.job_id(), reason});
  MUSTER_ASSIGN_OR_RETURN(*response.mutable_job(), Describe(request.job_id()));
  return response;
}

v1::ListMembersResponse CoordinatorHost::ListMembers() {
  v1::ListMembersResponse response;
  absl::MutexLock lock(&mutex_);
  for (MemberInfo& member : core_.Members()) {
    member.last_seen = OnTheWall(member.last_seen);
    *response.add_members() = ToPublicMember(member);
  }
  response.set_fleet_id(core_.fleet_id());
  response.set_term(core_.term());
  return response;
}

absl::StatusOr<Member> CoordinatorHost::FindRank(const JobId& id, Rank rank) {
  absl::MutexLock lock(&mutex_);
  const std::optional<JobInfo> info = core_.FindJob(id);
  if (!info) return NoSuchJob(id);
  const View* view = core_.CurrentView();
  if (info->state >= JobState::kSucceeded || view == nullptr || view->job != id) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "job %s is %s: no workers run it now; where a mesh has failed its operations are in the "
        "workers' run directories",
        id, Name(info->state)));
  }
  if (rank < 0 || static_cast<size_t>(rank) >= view->members.size()) {
    return absl::NotFoundError(absl::StrFormat("view %d of job %s has no rank %d; it has 0 to %d",
                                               view->epoch, id, rank, view->members.size() - 1));
  }
  return view->members[static_cast<size_t>(rank)];
}

// ---- watching ----------------------------------------------------------------------------------

absl::Status CoordinatorHost::AddWatcher(const JobId& id, std::shared_ptr<JobWatcher> watcher) {
  absl::MutexLock lock(&mutex_);
  if (stopped_) return absl::UnavailableError("the coordinator is shutting down");
  MUSTER_ASSIGN_OR_RETURN(v1::Job job, Describe(id));
  if (static_cast<int>(watchers_.size()) >= options_.max_watchers) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%d watchers follow jobs already, which is the limit", options_.max_watchers));
  }
  const bool last = HasEnded(id);
  watcher->OnJob(std::make_shared<const v1::Job>(std::move(job)), last);
  if (!last) watchers_.emplace(id, std::move(watcher));
  return absl::OkStatus();
}

void CoordinatorHost::RemoveWatcher(const JobWatcher* watcher) {
  std::shared_ptr<JobWatcher> goes;  // after the lock
  absl::MutexLock lock(&mutex_);
  for (auto it = watchers_.begin(); it != watchers_.end(); ++it) {
    if (it->second.get() != watcher) continue;
    goes = std::move(it->second);
    watchers_.erase(it);
    return;
  }
}

void CoordinatorHost::NotifyWatchers(const JobId& id) {
  const auto [begin, end] = watchers_.equal_range(id);
  if (begin == end) return;
  absl::StatusOr<v1::Job> described = Describe(id);
  if (!described.ok()) return;
  const bool last = HasEnded(id);
  const auto job = std::make_shared<const v1::Job>(*std::move(described));
  for (auto it = begin; it != end; ++it) it->second->OnJob(job, last);
  if (last) watchers_.erase(begin, end);
}

void CoordinatorHost::NotifyChanged() {
  for (const JobId& id : std::exchange(changed_, {})) {
    progressed_.erase(id);
    NotifyWatchers(id);
  }
}

}  // namespace muster
