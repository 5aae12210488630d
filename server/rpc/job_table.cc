#include "server/rpc/job_table.h"

#include <utility>

#include "base/check.h"
#include "google/protobuf/timestamp.pb.h"
#include "proto/convert/control.h"
#include "proto/convert/field.h"
#include "proto/convert/job.h"
#include "proto/convert/strategy.h"

namespace muster {
namespace {

void SetTimestamp(absl::Time time, google::protobuf::Timestamp* proto) {
  const int64_t seconds = absl::ToUnixSeconds(time);
  proto->set_seconds(seconds);
  proto->set_nanos(
      static_cast<int32_t>(absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
}

v1::ViewChange ToPublicViewChange(const coordinator::ViewChangeReport& report) {
  v1::ViewChange proto;
  proto.set_epoch(report.epoch);
  proto.set_cause(ToProto(report.cause));
  for (const WorkerName& worker : report.workers) proto.add_workers(worker);
  proto.set_world_size(static_cast<int32_t>(report.members.size()));
  proto.set_servers(static_cast<int32_t>(std::count_if(
      report.members.begin(), report.members.end(),
      [](const Member& member) { return member.role == MemberRole::kParameterServer; })));
  proto.set_resume_step(report.resume.step);
  if (report.fresh_start.has_value()) {
    proto.set_fresh_start(TextForPeople(report.fresh_start->checkpoint, kMaxTextBytes));
  }
  if (report.first_step_at != absl::InfinitePast()) {
    proto.set_duration_ms(absl::ToDoubleMilliseconds(report.first_step_at - report.started_at));
  }
  if (report.started_at != absl::InfinitePast()) {
    SetTimestamp(report.started_at, proto.mutable_started_at());
  }
  return proto;
}

// Ranks that communicate alike stand together.
void AddPaths(const JobEntry& entry, v1::Job* job) {
  std::vector<const CommunicationPath*> shown;  // as in job->paths()
  for (const auto& [rank, path] : entry.paths) {
    const auto found = std::find(shown.begin(), shown.end(), path.get());
    if (found != shown.end()) {
      job->mutable_paths(static_cast<int>(found - shown.begin()))->add_ranks(rank);
      continue;
    }
    shown.push_back(path.get());
    v1::PathInUse& added = *job->add_paths();
    added.add_ranks(rank);
    *added.mutable_path() = ToProto(*path);
    added.set_text(Describe(*path));
  }
}

bool IsNewer(const StateTag& a, const StateTag& b) {
  return std::pair(a.branch, a.step) > std::pair(b.branch, b.step);
}

// Workers that say the same stand together. Nothing once there is a newer checkpoint.
void AddFailedCheckpoints(const JobInfo& info, const JobEntry& entry, v1::Job* job) {
  const StateTag& failed = entry.failed_checkpoint;
  if (info.newest_checkpoint && !IsNewer(failed, info.newest_checkpoint->tag)) return;
  std::map<std::string, v1::FailedCheckpoint*> by_error;
  for (const auto& [worker, error] : entry.checkpoint_errors) {
    // What else there is to read stands in those workers' logs.
    const bool shown = by_error.size() < JobTable::kMaxErrorsShown || by_error.contains(error);
    v1::FailedCheckpoint*& group = by_error[shown ? error : ""];
    if (group == nullptr) {
      group = job->add_failed_checkpoints();
      group->set_step(failed.step);
      group->set_error(shown ? TextForPeople(error, kMaxTextBytes)
                             : "other errors; see their logs");
    }
    group->add_workers(worker);
  }
}

}  // namespace

JobEntry& JobTable::Add(const JobId& id, v1::JobDescription submitted, v1::JobDescription resolved,
                        absl::Time now) {
  JobEntry& entry = entries_[id];
  MUSTER_CHECK_EQ(entry.number, 0u) << "job id " << id << " is used twice";
  entry.number = next_number_++;
  entry.submitted = std::move(submitted);
  entry.resolved = std::make_shared<const v1::JobDescription>(std::move(resolved));
  entry.submitted_at = now;
  by_number_[entry.number] = id;
  return entry;
}

JobEntry* JobTable::Find(const JobId& id) {
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second;
}

const JobEntry* JobTable::Find(const JobId& id) const {
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second;
}

void JobTable::Remove(const JobId& id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  by_number_.erase(found->second.number);
  entries_.erase(found);
}

std::vector<JobId> JobTable::Prune(const PersistentState& keep) {
  std::vector<JobId> gone;
  for (const auto& [id, entry] : entries_) {
    if (keep.FindJob(id) == nullptr) gone.push_back(id);
  }
  for (const JobId& id : gone) Remove(id);
  return gone;
}

bool JobTable::TakeReport(JobEntry& entry, const coordinator::ViewChangeReport& report) {
  for (coordinator::ViewChangeReport& known : entry.view_changes) {
    if (known.epoch == report.epoch) {
      known = report;
      return false;
    }
  }
  entry.view_changes.push_back(report);
  ++entry.view_change_count;
  if (entry.view_changes.size() > kMaxViewChanges) entry.view_changes.pop_front();
  return true;
}

bool JobTable::TakePath(JobEntry& entry, Epoch epoch, Rank rank, const CommunicationPath& path) {
  if (epoch < entry.paths_epoch) return false;
  if (epoch > entry.paths_epoch) entry.paths.clear();
  entry.paths_epoch = epoch;
  std::shared_ptr<const CommunicationPath>& mine = entry.paths[rank];
  if (mine != nullptr && *mine == path) return false;
  mine = nullptr;
  for (const auto& [other, theirs] : entry.paths) {
    if (theirs != nullptr && *theirs == path) mine = theirs;
  }
  if (mine == nullptr) mine = std::make_shared<const CommunicationPath>(path);
  return true;
}

JobTable::CheckpointNews JobTable::TakeCheckpointFailure(
    JobEntry& entry, const WorkerName& worker, const std::optional<CheckpointFailure>& failure) {
  if (!failure.has_value() || IsNewer(entry.failed_checkpoint, failure->tag)) {
    return entry.checkpoint_errors.erase(worker) > 0 ? CheckpointNews::kMore
                                                     : CheckpointNews::kNone;
  }
  const bool newly = entry.checkpoint_errors.empty() || entry.failed_checkpoint != failure->tag;
  if (newly) entry.checkpoint_errors.clear();
  entry.failed_checkpoint = failure->tag;
  std::string& known = entry.checkpoint_errors[worker];
  if (!newly && known == failure->error) return CheckpointNews::kNone;
  known = failure->error;
  return newly ? CheckpointNews::kNewlyFailed : CheckpointNews::kMore;
}

v1::Straggler ToPublicStraggler(const Straggler& straggler) {
  v1::Straggler proto;
  proto.set_rank(straggler.rank);
  proto.set_worker(straggler.worker);
  switch (straggler.cause) {
    case Straggler::Cause::kBusy:
      proto.set_cause(v1::Straggler::BUSY);
      break;
    case Straggler::Cause::kSilent:
      proto.set_cause(v1::Straggler::SILENT);
      break;
    case Straggler::Cause::kLink:
      proto.set_cause(v1::Straggler::LINK);
      break;
  }
  proto.set_operation(straggler.operation);
  proto.set_label(straggler.label);
  proto.set_step(straggler.step);
  proto.set_waiter(straggler.waiter);
  proto.set_held_up_seconds(absl::ToDoubleSeconds(straggler.held_up));
  for (const Rank rank : straggler.waiting) proto.add_waiting(rank);
  proto.set_text(Describe(straggler));
  return proto;
}

v1::Job ToPublicJob(const JobInfo& info, const JobEntry& entry) {
  v1::Job job;
  job.set_id(info.plan.id);
  *job.mutable_description() = entry.submitted;
  job.set_state(ToProto(info.state));
  job.set_reason(TextForPeople(info.reason, kMaxTextBytes));
  job.set_total_steps(info.plan.total_steps);
  if (info.progress) *job.mutable_progress() = ToProto(*info.progress);
  if (info.view && info.state < JobState::kSucceeded) *job.mutable_view() = ToProto(*info.view);
  *job.mutable_strategy() = ToProto(info.strategy);
  job.set_strategy_reason(TextForPeople(info.strategy_reason, kMaxTextBytes));
  for (const coordinator::ViewChangeReport& report : entry.view_changes) {
    *job.add_view_changes() = ToPublicViewChange(report);
  }
  job.set_view_change_count(entry.view_change_count);
  if (info.final_report && info.state == JobState::kSucceeded) {
    *job.mutable_final_report() = ToProto(*info.final_report);
  }
  if (info.newest_checkpoint) {
    job.set_newest_checkpoint(TextForPeople(info.newest_checkpoint->path, kMaxTextBytes));
  }
  AddPaths(entry, &job);
  AddFailedCheckpoints(info, entry, &job);
  SetTimestamp(entry.submitted_at, job.mutable_submitted_at());
  if (entry.ended_at != absl::InfinitePast()) SetTimestamp(entry.ended_at, job.mutable_ended_at());
  return job;
}

v1::ExplainStrategyResponse ToPublicChoice(const StrategyChoice& choice, const JobInfo& info) {
  v1::ExplainStrategyResponse response;
  response.set_automatic(info.strategy.automatic);
  response.set_reason(TextForPeople(choice.reason, kMaxTextBytes));
  response.set_workers(choice.crew.workers);
  response.set_servers(choice.crew.servers);
  for (const StrategyCandidate& candidate : choice.candidates) {
    v1::StrategyCandidate& added = *response.add_candidates();
    *added.mutable_strategy() = ToProto(candidate.strategy);
    added.set_text(ToString(candidate.strategy));
    added.set_worker_bytes(candidate.worker_bytes);
    added.set_server_bytes(candidate.server_bytes);
    added.set_fits(candidate.fits());
    added.set_obstacle(TextForPeople(candidate.obstacle, kMaxTextBytes));
    if (candidate.seconds.has_value()) added.set_communication_seconds(*candidate.seconds);
    added.set_chosen(candidate.strategy == choice.strategy);
    added.set_in_force(info.view.has_value() && candidate.strategy == info.view->strategy);
  }
  return response;
}

v1::FleetMember ToPublicMember(const MemberInfo& info) {
  v1::FleetMember proto;
  *proto.mutable_member() = ToProto(info.member);
  proto.set_phase(ToProto(info.status.phase));
  proto.set_rank(info.rank);
  proto.set_job_id(info.status.job);
  proto.set_epoch(info.status.active_epoch);
  proto.set_step(info.status.stable.step);
  proto.set_attached(info.attached);
  if (info.last_seen != absl::InfinitePast()) {
    SetTimestamp(info.last_seen, proto.mutable_last_heard_at());
  }
  proto.set_software_version(info.software_version);
  return proto;
}

}  // namespace muster
