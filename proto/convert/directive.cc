// What the coordinator says to a worker.
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/control/placement.h"
#include "base/status_macros.h"
#include "proto/convert/control.h"
#include "proto/convert/field.h"
#include "proto/convert/job.h"

namespace muster {
namespace {

constexpr int64_t kMaxIntervalMs = 86'400'000;

// Writes one directive into the response.
struct DirectiveWriter {
  v1::SessionResponse& to;

  void operator()(const Welcome& from) {
    v1::Welcome& proto = *to.mutable_welcome();
    proto.set_fleet_id(from.fleet_id);
    proto.set_heartbeat_ms(from.heartbeat_ms);
    proto.set_lease_ms(from.lease_ms);
    proto.set_orphan_timeout_ms(from.orphan_timeout_ms);
  }
  void operator()(const Evicted& from) {
    to.mutable_evicted()->set_reason(TextForPeople(from.reason, kMaxTextBytes));
    to.mutable_evicted()->set_permanent(from.permanent);
  }
  void operator()(const Propose& from) {
    v1::Propose& proto = *to.mutable_propose();
    proto.set_epoch(from.epoch);
    proto.set_job_id(from.job);
    for (const Incarnation member : from.members) proto.add_members(member.value);
    if (from.sealed) *proto.mutable_sealed() = ToProto(*from.sealed);
  }
  void operator()(const Activate& from) {
    v1::Activate& proto = *to.mutable_activate();
    *proto.mutable_view() = ToProto(from.view);
    if (from.roll_forward) *proto.mutable_roll_forward() = ToProto(*from.roll_forward);
    if (from.fresh_start) proto.mutable_fresh_start()->set_checkpoint(from.fresh_start->checkpoint);
    if (from.move) {
      *proto.mutable_move()->mutable_view() = ToProto(from.move->view);
      for (Incarnation giver : from.move->givers) proto.mutable_move()->add_givers(giver.value);
    }
  }
  void operator()(const Pause& from) { to.mutable_pause()->set_epoch(from.epoch); }
  void operator()(const Learn& from) {
    v1::Learn& proto = *to.mutable_learn();
    proto.set_job_id(from.job);
    proto.set_epoch(from.epoch);
    *proto.mutable_source() = ToProto(from.source);
    proto.set_sharded(from.sharded);
  }
  void operator()(const Seal& from) {
    to.mutable_seal()->set_epoch(from.epoch);
    *to.mutable_seal()->mutable_tag() = ToProto(from.tag);
  }
  void operator()(const CommitCheckpoint& from) {
    *to.mutable_commit_checkpoint()->mutable_tag() = ToProto(from.tag);
  }
  void operator()(const EndJob& from) {
    v1::EndJob& proto = *to.mutable_end_job();
    proto.set_job_id(from.job);
    proto.set_outcome(ToProto(from.outcome));
    proto.set_reason(TextForPeople(from.reason, kMaxTextBytes));
    proto.set_unknown(from.unknown);
  }
  void operator()(const Dismiss& from) {
    to.mutable_dismiss()->set_job_id(from.job);
    to.mutable_dismiss()->set_epoch(from.epoch);
  }
  void operator()(const Release& from) {
    to.mutable_release()->set_reason(TextForPeople(from.reason, kMaxTextBytes));
  }
};

absl::Status CheckJobId(absl::string_view path, absl::string_view id) {
  return CheckText(path, id, kMaxIdBytes, /*required=*/true);
}

absl::Status RequireEpoch(absl::string_view path, Epoch epoch) {
  return epoch == 0 ? MissingField(path) : CheckEpoch(path, epoch);
}

absl::StatusOr<Directive> Convert(const v1::Welcome& welcome) {
  MUSTER_RETURN_IF_ERROR(
      CheckText("welcome.fleet_id", welcome.fleet_id(), kMaxIdBytes, /*required=*/true));
  MUSTER_RETURN_IF_ERROR(
      CheckRange("welcome.heartbeat_ms", welcome.heartbeat_ms(), 1, kMaxIntervalMs));
  MUSTER_RETURN_IF_ERROR(
      CheckRange("welcome.lease_ms", welcome.lease_ms(), welcome.heartbeat_ms(), kMaxIntervalMs));
  MUSTER_RETURN_IF_ERROR(
      CheckRange("welcome.orphan_timeout_ms", welcome.orphan_timeout_ms(), 1, kMaxIntervalMs));
  return Welcome{.fleet_id = welcome.fleet_id(),
                 .heartbeat_ms = welcome.heartbeat_ms(),
                 .lease_ms = welcome.lease_ms(),
                 .orphan_timeout_ms = welcome.orphan_timeout_ms()};
}

absl::StatusOr<Directive> Convert(const v1::Evicted& evicted) {
  MUSTER_RETURN_IF_ERROR(CheckText("evicted.reason", evicted.reason(), kMaxTextBytes));
  return Evicted{.reason = evicted.reason(), .permanent = evicted.permanent()};
}

absl::StatusOr<Directive> Convert(const v1::Propose& propose) {
  Propose result;
  MUSTER_RETURN_IF_ERROR(RequireEpoch("propose.epoch", propose.epoch()));
  MUSTER_RETURN_IF_ERROR(CheckJobId("propose.job_id", propose.job_id()));
  MUSTER_RETURN_IF_ERROR(
      CheckRange("propose.members.size", propose.members_size(), 1, kMaxMembers));
  result.epoch = propose.epoch();
  result.job = propose.job_id();
  absl::flat_hash_set<Incarnation> seen;
  for (int i = 0; i < propose.members_size(); ++i) {
    const Incarnation member{propose.members(i)};
    if (!member || !seen.insert(member).second) {
      return FieldError(absl::StrFormat("propose.members[%d]", i),
                        "an incarnation not named before", member.ToString());
    }
    result.members.push_back(member);
  }
  if (propose.has_sealed()) {
    MUSTER_ASSIGN_OR_RETURN(result.sealed, FromProto(propose.sealed(), "propose.sealed"));
  }
  return result;
}

absl::StatusOr<Directive> Convert(const v1::Activate& activate) {
  Activate result;
  if (!activate.has_view()) return MissingField("activate.view");
  MUSTER_ASSIGN_OR_RETURN(result.view, FromProto(activate.view(), "activate.view"));
  if (activate.has_roll_forward()) {
    MUSTER_ASSIGN_OR_RETURN(result.roll_forward,
                            FromProto(activate.roll_forward(), "activate.roll_forward"));
  }
  if (activate.has_fresh_start()) {
    MUSTER_RETURN_IF_ERROR(CheckText("activate.fresh_start.checkpoint",
                                     activate.fresh_start().checkpoint(), kMaxPathBytes));
    result.fresh_start = FreshStart{.checkpoint = activate.fresh_start().checkpoint()};
  }
  if (activate.has_move()) {
    MoveSource move;
    if (!activate.move().has_view()) return MissingField("activate.move.view");
    MUSTER_ASSIGN_OR_RETURN(move.view, FromProto(activate.move().view(), "activate.move.view"));
    MUSTER_ASSIGN_OR_RETURN(
        move.givers, MembersNamed(activate.move().givers(), move.view, "activate.move.givers"));
    // Every giver takes part in the move.
    MUSTER_RETURN_IF_ERROR(
        MembersNamed(activate.move().givers(), result.view, "activate.move.givers").status());
    if (LeastHolders(move.view, move.givers) == 0) {
      return absl::InvalidArgumentError("activate.move.givers: do not hold every shard");
    }
    result.move = std::move(move);
  }
  return result;
}

absl::StatusOr<Directive> Convert(const v1::Pause& pause) {
  MUSTER_RETURN_IF_ERROR(RequireEpoch("pause.epoch", pause.epoch()));
  return Pause{.epoch = pause.epoch()};
}

absl::StatusOr<Directive> Convert(const v1::Learn& learn) {
  Learn result;
  MUSTER_RETURN_IF_ERROR(CheckJobId("learn.job_id", learn.job_id()));
  MUSTER_RETURN_IF_ERROR(RequireEpoch("learn.epoch", learn.epoch()));
  if (!learn.has_source()) return MissingField("learn.source");
  MUSTER_ASSIGN_OR_RETURN(result.source, FromProto(learn.source(), "learn.source"));
  result.job = learn.job_id();
  result.epoch = learn.epoch();
  result.sharded = learn.sharded();
  return result;
}

absl::StatusOr<Directive> Convert(const v1::Seal& seal) {
  Seal result;
  MUSTER_RETURN_IF_ERROR(RequireEpoch("seal.epoch", seal.epoch()));
  MUSTER_ASSIGN_OR_RETURN(result.tag, TagOf(seal, "seal"));
  result.epoch = seal.epoch();
  return result;
}

absl::StatusOr<Directive> Convert(const v1::CommitCheckpoint& commit) {
  CommitCheckpoint result;
  MUSTER_ASSIGN_OR_RETURN(result.tag, TagOf(commit, "commit_checkpoint"));
  return result;
}

absl::StatusOr<Directive> Convert(const v1::EndJob& end) {
  EndJob result;
  MUSTER_RETURN_IF_ERROR(CheckJobId("end_job.job_id", end.job_id()));
  MUSTER_ASSIGN_OR_RETURN(result.outcome, FromProto(end.outcome(), "end_job.outcome"));
  if (result.outcome < JobState::kSucceeded) {
    return FieldError("end_job.outcome", "succeeded, failed or cancelled", Name(result.outcome));
  }
  MUSTER_RETURN_IF_ERROR(CheckText("end_job.reason", end.reason(), kMaxTextBytes));
  result.job = end.job_id();
  result.reason = end.reason();
  result.unknown = end.unknown();
  return result;
}

absl::StatusOr<Directive> Convert(const v1::Dismiss& dismiss) {
  MUSTER_RETURN_IF_ERROR(CheckJobId("dismiss.job_id", dismiss.job_id()));
  if (dismiss.epoch() == 0) return MissingField("dismiss.epoch");
  MUSTER_RETURN_IF_ERROR(CheckEpoch("dismiss.epoch", dismiss.epoch()));
  return Dismiss{.job = dismiss.job_id(), .epoch = dismiss.epoch()};
}

absl::StatusOr<Directive> Convert(const v1::Release& release) {
  MUSTER_RETURN_IF_ERROR(CheckText("release.reason", release.reason(), kMaxTextBytes));
  return Release{.reason = release.reason()};
}

absl::StatusOr<Directive> ConvertDirective(const v1::SessionResponse& response) {
  switch (response.directive_case()) {
    case v1::SessionResponse::kWelcome:
      return Convert(response.welcome());
    case v1::SessionResponse::kEvicted:
      return Convert(response.evicted());
    case v1::SessionResponse::kPropose:
      return Convert(response.propose());
    case v1::SessionResponse::kActivate:
      return Convert(response.activate());
    case v1::SessionResponse::kPause:
      return Convert(response.pause());
    case v1::SessionResponse::kLearn:
      return Convert(response.learn());
    case v1::SessionResponse::kSeal:
      return Convert(response.seal());
    case v1::SessionResponse::kCommitCheckpoint:
      return Convert(response.commit_checkpoint());
    case v1::SessionResponse::kEndJob:
      return Convert(response.end_job());
    case v1::SessionResponse::kDismiss:
      return Convert(response.dismiss());
    case v1::SessionResponse::kRelease:
      return Convert(response.release());
    case v1::SessionResponse::DIRECTIVE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("directive: is missing or of a kind not known here");
}

}  // namespace

const JobId* JobNamedBy(const Directive& directive) {
  if (const auto* propose = std::get_if<Propose>(&directive)) return &propose->job;
  if (const auto* activate = std::get_if<Activate>(&directive)) return &activate->view.job;
  if (const auto* learn = std::get_if<Learn>(&directive)) return &learn->job;
  if (const auto* end = std::get_if<EndJob>(&directive)) return &end->job;
  return nullptr;
}

v1::SessionResponse ToProto(Term term, const Directive& directive) {
  v1::SessionResponse response;
  response.set_term(term);
  std::visit(DirectiveWriter{response}, directive);
  return response;
}

absl::StatusOr<DirectiveMessage> FromProto(const v1::SessionResponse& response) {
  DirectiveMessage message;
  MUSTER_RETURN_IF_ERROR(RequireEpoch("term", response.term()));
  message.term = response.term();
  MUSTER_ASSIGN_OR_RETURN(message.directive, ConvertDirective(response));
  if (response.has_job()) {
    absl::StatusOr<JobSpec> job = JobSpecFromProto(response.job());
    if (!job.ok()) return Annotate(job.status(), "job");
    message.job = *std::move(job);
  } else if (JobNamedBy(message.directive) != nullptr &&
             !std::holds_alternative<EndJob>(message.directive)) {
    return MissingField("job");
  }
  return message;
}

}  // namespace muster
