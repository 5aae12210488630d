// The messages that others are made of.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "proto/convert/control.h"
#include "proto/convert/field.h"
#include "proto/convert/strategy.h"

namespace muster {

// ---- enums -------------------------------------------------------------------------------------

v1::WorkerPhase ToProto(WorkerPhase phase) {
  switch (phase) {
    case WorkerPhase::kIdle:
      return v1::WORKER_PHASE_IDLE;
    case WorkerPhase::kLearning:
      return v1::WORKER_PHASE_LEARNING;
    case WorkerPhase::kQuiesced:
      return v1::WORKER_PHASE_QUIESCED;
    case WorkerPhase::kActivating:
      return v1::WORKER_PHASE_ACTIVATING;
    case WorkerPhase::kRunning:
      return v1::WORKER_PHASE_RUNNING;
    case WorkerPhase::kPaused:
      return v1::WORKER_PHASE_PAUSED;
    case WorkerPhase::kFinished:
      return v1::WORKER_PHASE_FINISHED;
    case WorkerPhase::kFailed:
      return v1::WORKER_PHASE_FAILED;
    case WorkerPhase::kOrphaned:
      return v1::WORKER_PHASE_ORPHANED;
  }
  return v1::WORKER_PHASE_UNSPECIFIED;
}

v1::JobState ToProto(JobState state) {
  switch (state) {
    case JobState::kQueued:
      return v1::JOB_STATE_QUEUED;
    case JobState::kStarting:
      return v1::JOB_STATE_STARTING;
    case JobState::kRunning:
      return v1::JOB_STATE_RUNNING;
    case JobState::kWaiting:
      return v1::JOB_STATE_WAITING;
    case JobState::kSucceeded:
      return v1::JOB_STATE_SUCCEEDED;
    case JobState::kFailed:
      return v1::JOB_STATE_FAILED;
    case JobState::kCancelled:
      return v1::JOB_STATE_CANCELLED;
  }
  return v1::JOB_STATE_UNSPECIFIED;
}

v1::ViewChangeCause ToProto(ViewChangeCause cause) {
  switch (cause) {
    case ViewChangeCause::kStart:
      return v1::VIEW_CHANGE_CAUSE_START;
    case ViewChangeCause::kDeath:
      return v1::VIEW_CHANGE_CAUSE_DEATH;
    case ViewChangeCause::kJoin:
      return v1::VIEW_CHANGE_CAUSE_JOIN;
    case ViewChangeCause::kLeave:
      return v1::VIEW_CHANGE_CAUSE_LEAVE;
    case ViewChangeCause::kDrain:
      return v1::VIEW_CHANGE_CAUSE_DRAIN;
    case ViewChangeCause::kSwitch:
      return v1::VIEW_CHANGE_CAUSE_SWITCH;
    case ViewChangeCause::kRestart:
      return v1::VIEW_CHANGE_CAUSE_RESTART;
  }
  return v1::VIEW_CHANGE_CAUSE_UNSPECIFIED;
}

namespace {

// The value whose wire form this is. So each enum has one switch, which the compiler checks.
template <typename Domain, typename Wire>
absl::StatusOr<Domain> EnumFromProto(Wire wire, absl::string_view path, absl::string_view must_be) {
  for (int value = 1; wire != 0 && value <= UINT8_MAX; ++value) {
    const auto candidate = static_cast<Domain>(value);
    if (ToProto(candidate) == wire) return candidate;
  }
  return FieldError(path, must_be, absl::StrCat("number ", static_cast<int>(wire)));
}

}  // namespace

absl::StatusOr<WorkerPhase> FromProto(v1::WorkerPhase phase, absl::string_view path) {
  return EnumFromProto<WorkerPhase>(phase, path, "a known phase");
}

absl::StatusOr<JobState> FromProto(v1::JobState state, absl::string_view path) {
  return EnumFromProto<JobState>(state, path, "a known job state");
}

absl::StatusOr<ViewChangeCause> FromProto(v1::ViewChangeCause cause, absl::string_view path) {
  return EnumFromProto<ViewChangeCause>(cause, path, "a known cause");
}

// ---- messages ----------------------------------------------------------------------------------

v1::StateTag ToProto(const StateTag& tag) {
  v1::StateTag proto;
  proto.set_branch(tag.branch);
  proto.set_step(tag.step);
  proto.set_epoch(tag.epoch);
  return proto;
}

absl::StatusOr<StateTag> FromProto(const v1::StateTag& tag, absl::string_view path) {
  MUSTER_RETURN_IF_ERROR(CheckRange(Field(path, "step"), tag.step(), 0, kMaxJobSteps));
  MUSTER_RETURN_IF_ERROR(CheckEpoch(Field(path, "branch"), tag.branch()));
  MUSTER_RETURN_IF_ERROR(CheckEpoch(Field(path, "epoch"), tag.epoch()));
  return StateTag{.branch = tag.branch(), .step = tag.step(), .epoch = tag.epoch()};
}

v1::CommitRecord ToProto(const CommitRecord& record) {
  v1::CommitRecord proto;
  proto.set_step(record.step);
  proto.set_epoch(record.epoch);
  proto.set_loss_sum(record.loss_sum);
  proto.set_samples(record.samples);
  proto.set_correct(record.correct);
  proto.set_gradient_norm(record.gradient_norm);
  proto.set_finite(record.finite);
  proto.set_pause(record.pause);
  proto.mutable_tensor_factors()->Add(record.tensor_factors.begin(), record.tensor_factors.end());
  return proto;
}

absl::StatusOr<CommitRecord> FromProto(const v1::CommitRecord& record, absl::string_view path) {
  MUSTER_RETURN_IF_ERROR(CheckRange(Field(path, "step"), record.step(), 1, kMaxJobSteps));
  MUSTER_RETURN_IF_ERROR(CheckEpoch(Field(path, "epoch"), record.epoch()));
  MUSTER_RETURN_IF_ERROR(CheckRange(Field(path, "samples"), record.samples(), 0, INT64_MAX));
  MUSTER_RETURN_IF_ERROR(CheckRange(Field(path, "correct"), record.correct(), 0, record.samples()));
  // The loss and the norm of a step that is not finite may be anything.
  if (record.finite()) {
    MUSTER_RETURN_IF_ERROR(CheckFinite(Field(path, "loss_sum"), record.loss_sum()));
    MUSTER_RETURN_IF_ERROR(
        CheckFiniteAtLeastZero(Field(path, "gradient_norm"), record.gradient_norm()));
  }
  if (record.tensor_factors_size() > kMaxTensorFactors) {
    return FieldError(Field(path, "tensor_factors"),
                      absl::StrCat("a list of at most ", kMaxTensorFactors),
                      absl::StrCat(record.tensor_factors_size()));
  }
  for (int i = 0; i < record.tensor_factors_size(); ++i) {
    MUSTER_RETURN_IF_ERROR(CheckFinitePositive(
        absl::StrCat(Field(path, "tensor_factors"), "[", i, "]"), record.tensor_factors(i)));
  }
  return CommitRecord{
      .step = record.step(),
      .epoch = record.epoch(),
      .loss_sum = record.loss_sum(),
      .samples = record.samples(),
      .correct = record.correct(),
      .gradient_norm = record.gradient_norm(),
      .finite = record.finite(),
      .pause = record.pause(),
      .tensor_factors = {record.tensor_factors().begin(), record.tensor_factors().end()}};
}

v1::Member ToProto(const Member& member) {
  v1::Member proto;
  proto.set_name(member.name);
  proto.set_incarnation(member.incarnation.value);
  proto.set_host(member.host);
  proto.set_data_address(member.data_address);
  proto.set_rpc_address(member.rpc_address);
  proto.set_device(member.device);
  proto.set_role(member.role == MemberRole::kParameterServer ? v1::Member::PARAMETER_SERVER
                                                             : v1::Member::WORKER);
  return proto;
}

absl::StatusOr<Member> FromProto(const v1::Member& member, absl::string_view path) {
  MUSTER_RETURN_IF_ERROR(CheckName(Field(path, "name"), member.name()));
  if (member.incarnation() == 0) return MissingField(Field(path, "incarnation"));
  MUSTER_RETURN_IF_ERROR(CheckText(Field(path, "host"), member.host(), kMaxAddressBytes));
  MUSTER_RETURN_IF_ERROR(CheckText(Field(path, "data_address"), member.data_address(),
                                   kMaxAddressBytes, /*required=*/true));
  MUSTER_RETURN_IF_ERROR(CheckText(Field(path, "rpc_address"), member.rpc_address(),
                                   kMaxAddressBytes, /*required=*/true));
  MUSTER_RETURN_IF_ERROR(CheckText(Field(path, "device"), member.device(), kMaxNameBytes));
  MemberRole role = MemberRole::kWorker;
  switch (member.role()) {
    case v1::Member::ROLE_UNSPECIFIED:
    case v1::Member::WORKER:
      break;
    case v1::Member::PARAMETER_SERVER:
      role = MemberRole::kParameterServer;
      break;
    default:
      return FieldError(Field(path, "role"), "WORKER or PARAMETER_SERVER",
                        absl::StrCat("number ", static_cast<int>(member.role())));
  }
  return Member{.name = member.name(),
                .incarnation = Incarnation{member.incarnation()},
                .host = member.host(),
                .data_address = member.data_address(),
                .rpc_address = member.rpc_address(),
                .device = member.device(),
                .role = role};
}

v1::View ToProto(const View& view) {
  v1::View proto;
  proto.set_epoch(view.epoch);
  proto.set_job_id(view.job);
  for (const Member& member : view.members) *proto.add_members() = ToProto(member);
  *proto.mutable_resume() = ToProto(view.resume);
  proto.set_hold(view.hold);
  *proto.mutable_strategy() = ToProto(view.strategy);
  for (Incarnation incarnation : view.leaving) proto.add_leaving(incarnation.value);
  return proto;
}

absl::StatusOr<View> FromProto(const v1::View& view, absl::string_view path) {
  View result;
  if (view.epoch() == 0) return MissingField(Field(path, "epoch"));
  MUSTER_RETURN_IF_ERROR(CheckEpoch(Field(path, "epoch"), view.epoch()));
  MUSTER_RETURN_IF_ERROR(
      CheckText(Field(path, "job_id"), view.job_id(), kMaxIdBytes, /*required=*/true));
  MUSTER_RETURN_IF_ERROR(
      CheckRange(Field(path, "members.size"), view.members_size(), 1, kMaxMembers));
  result.epoch = view.epoch();
  result.job = view.job_id();
  absl::flat_hash_set<std::string> names;
  absl::flat_hash_set<Incarnation> incarnations;
  for (int i = 0; i < view.members_size(); ++i) {
    const std::string at = absl::StrFormat("%s[%d]", Field(path, "members"), i);
    MUSTER_ASSIGN_OR_RETURN(Member member, FromProto(view.members(i), at));
    if (member.role == MemberRole::kWorker && !result.members.empty() &&
        result.members.back().role != MemberRole::kWorker) {
      return FieldError(Field(at, "role"), "workers before parameter servers",
                        "a worker after one");
    }
    if (!names.insert(member.name).second || !incarnations.insert(member.incarnation).second) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: %s (%s) is in the view twice", at, member.name, member.incarnation.ToString()));
    }
    result.members.push_back(std::move(member));
  }
  if (!view.has_resume()) return MissingField(Field(path, "resume"));
  MUSTER_ASSIGN_OR_RETURN(result.resume, FromProto(view.resume(), Field(path, "resume")));
  result.hold = view.hold();
  MUSTER_ASSIGN_OR_RETURN(result.strategy,
                          StrategyFromProto(view.strategy(), {}, Field(path, "strategy")));
  MUSTER_ASSIGN_OR_RETURN(result.leaving,
                          MembersNamed(view.leaving(), result, Field(path, "leaving")));
  if (result.leaving.size() == result.members.size()) {
    return absl::InvalidArgumentError(Field(path, "leaving") + ": names every member");
  }
  return result;
}

absl::StatusOr<std::vector<Incarnation>> MembersNamed(
    const google::protobuf::RepeatedField<uint64_t>& named, const View& view,
    absl::string_view path) {
  std::vector<Incarnation> members;
  for (int i = 0; i < named.size(); ++i) {
    const Incarnation incarnation{named[i]};
    if (view.RankOf(incarnation) < 0 ||
        std::find(members.begin(), members.end(), incarnation) != members.end()) {
      return FieldError(absl::StrFormat("%s[%d]", path, i),
                        "a member of the view, not named before", incarnation.ToString());
    }
    members.push_back(incarnation);
  }
  return members;
}

v1::Progress ToProto(const Progress& progress) {
  v1::Progress proto;
  proto.set_step(progress.step);
  proto.set_loss(progress.loss);
  proto.set_learning_rate(progress.learning_rate);
  proto.set_gradient_norm(progress.gradient_norm);
  proto.set_samples_per_second(progress.samples_per_second);
  proto.set_comm_wait_share(progress.comm_wait_share);
  proto.set_step_ms_p50(progress.step_ms_p50);
  proto.set_step_ms_p99(progress.step_ms_p99);
  proto.set_skipped_steps(progress.skipped_steps);
  if (progress.test_accuracy) proto.set_test_accuracy(*progress.test_accuracy);
  if (progress.test_loss) proto.set_test_loss(*progress.test_loss);
  return proto;
}

absl::StatusOr<Progress> FromProto(const v1::Progress& progress, absl::string_view path) {
  MUSTER_RETURN_IF_ERROR(CheckRange(Field(path, "step"), progress.step(), 0, kMaxJobSteps));
  MUSTER_RETURN_IF_ERROR(
      CheckRange(Field(path, "skipped_steps"), progress.skipped_steps(), 0, kMaxJobSteps));
  Progress result{.step = progress.step(),
                  .loss = progress.loss(),
                  .learning_rate = progress.learning_rate(),
                  .gradient_norm = progress.gradient_norm(),
                  .samples_per_second = progress.samples_per_second(),
                  .comm_wait_share = progress.comm_wait_share(),
                  .step_ms_p50 = progress.step_ms_p50(),
                  .step_ms_p99 = progress.step_ms_p99(),
                  .skipped_steps = progress.skipped_steps()};
  if (progress.has_test_accuracy()) result.test_accuracy = progress.test_accuracy();
  if (progress.has_test_loss()) result.test_loss = progress.test_loss();
  return result;
}

v1::FinalReport ToProto(const FinalReport& report) {
  v1::FinalReport proto;
  *proto.mutable_progress() = ToProto(report.progress);
  proto.set_checkpoint(report.checkpoint);
  proto.set_parameters_sha256(report.parameters_sha256);
  return proto;
}

absl::StatusOr<FinalReport> FromProto(const v1::FinalReport& report, absl::string_view path) {
  FinalReport result;
  if (!report.has_progress()) return MissingField(Field(path, "progress"));
  MUSTER_ASSIGN_OR_RETURN(result.progress, FromProto(report.progress(), Field(path, "progress")));
  MUSTER_RETURN_IF_ERROR(CheckText(Field(path, "checkpoint"), report.checkpoint(), kMaxPathBytes));
  MUSTER_RETURN_IF_ERROR(
      CheckText(Field(path, "parameters_sha256"), report.parameters_sha256(), kMaxIdBytes));
  result.checkpoint = report.checkpoint();
  result.parameters_sha256 = report.parameters_sha256();
  return result;
}

}  // namespace muster
