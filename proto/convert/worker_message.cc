// What a worker says to the coordinator.
#include <algorithm>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "proto/convert/control.h"
#include "proto/convert/field.h"

namespace muster {
namespace {

v1::CheckpointReport ReportToProto(const CheckpointReport& report) {
  v1::CheckpointReport proto;
  *proto.mutable_tag() = ToProto(report.tag);
  proto.set_path(report.path);
  proto.set_checksum(report.checksum);
  proto.set_part(report.part);
  proto.set_parts(report.parts);
  return proto;
}

absl::StatusOr<CheckpointReport> ReportFromProto(const v1::CheckpointReport& report,
                                                 absl::string_view path) {
  CheckpointReport result;
  MUSTER_ASSIGN_OR_RETURN(result.tag, TagOf(report, path));
  MUSTER_RETURN_IF_ERROR(
      CheckText(Field(path, "path"), report.path(), kMaxPathBytes, /*required=*/true));
  MUSTER_RETURN_IF_ERROR(CheckText(Field(path, "checksum"), report.checksum(), kMaxIdBytes));
  result.parts = std::max(1, report.parts());
  MUSTER_RETURN_IF_ERROR(CheckRange(Field(path, "parts"), result.parts, 1, kMaxMembers));
  MUSTER_RETURN_IF_ERROR(CheckRange(Field(path, "part"), report.part(), 0, result.parts - 1));
  result.part = report.part();
  result.path = report.path();
  result.checksum = report.checksum();
  return result;
}

v1::StateSize SizeToProto(const StateSize& size) {
  v1::StateSize proto;
  proto.set_elements(size.elements);
  proto.set_largest_block(size.largest_block);
  proto.set_gathered_blocks(size.gathered_blocks);
  proto.set_bucket(size.bucket);
  proto.set_slots(size.slots);
  proto.set_parameter_bytes(size.parameter_bytes);
  proto.set_gradient_bytes(size.gradient_bytes);
  proto.set_micro_batches(size.micro_batches);
  proto.set_carried_bytes(size.carried_bytes);
  return proto;
}

// Products of these must not overflow.
constexpr int64_t kMaxElements = int64_t{1} << 40;
constexpr int32_t kMaxSlots = 64;
constexpr int32_t kMaxGatheredBlocks = 1 << 16;

absl::StatusOr<StateSize> SizeFromProto(const v1::StateSize& size, absl::string_view path) {
  MUSTER_RETURN_IF_ERROR(CheckRange(Field(path, "elements"), size.elements(), 1, kMaxElements));
  MUSTER_RETURN_IF_ERROR(
      CheckRange(Field(path, "largest_block"), size.largest_block(), 1, size.elements()));
  MUSTER_RETURN_IF_ERROR(
      CheckRange(Field(path, "gathered_blocks"), size.gathered_blocks(), 1, kMaxGatheredBlocks));
  MUSTER_RETURN_IF_ERROR(CheckRange(Field(path, "bucket"), size.bucket(), 1, kMaxElements));
  MUSTER_RETURN_IF_ERROR(CheckRange(Field(path, "slots"), size.slots(), 0, kMaxSlots));
  MUSTER_RETURN_IF_ERROR(CheckRange(Field(path, "parameter_bytes"), size.parameter_bytes(), 1, 16));
  MUSTER_RETURN_IF_ERROR(CheckRange(Field(path, "gradient_bytes"), size.gradient_bytes(), 1, 16));
  MUSTER_RETURN_IF_ERROR(
      CheckRange(Field(path, "micro_batches"), size.micro_batches(), 1, INT32_MAX));
  MUSTER_RETURN_IF_ERROR(CheckRange(Field(path, "carried_bytes"), size.carried_bytes(), 0, 16));
  return StateSize{.elements = size.elements(),
                   .largest_block = size.largest_block(),
                   .gathered_blocks = size.gathered_blocks(),
                   .bucket = size.bucket(),
                   .slots = size.slots(),
                   .parameter_bytes = size.parameter_bytes(),
                   .gradient_bytes = size.gradient_bytes(),
                   .micro_batches = size.micro_batches(),
                   .carried_bytes = size.carried_bytes()};
}

v1::LinkSpeeds LinksToProto(const LinkSpeeds& links) {
  v1::LinkSpeeds proto;
  proto.set_ranks(links.ranks);
  proto.set_latency_seconds(links.latency_seconds);
  proto.set_message_seconds(links.message_seconds);
  proto.set_wire_seconds(links.wire_seconds);
  proto.set_one_way_seconds(links.one_way_seconds);
  proto.set_reduce_seconds(links.reduce_seconds);
  proto.set_meet_seconds(links.meet_seconds);
  proto.set_shared_seconds(links.shared_seconds);
  return proto;
}

absl::StatusOr<LinkSpeeds> LinksFromProto(const v1::LinkSpeeds& links, absl::string_view path) {
  MUSTER_RETURN_IF_ERROR(CheckRange(Field(path, "ranks"), links.ranks(), 1, kMaxMembers));
  const std::pair<const char*, double> times[] = {
      {"latency_seconds", links.latency_seconds()}, {"message_seconds", links.message_seconds()},
      {"wire_seconds", links.wire_seconds()},       {"one_way_seconds", links.one_way_seconds()},
      {"reduce_seconds", links.reduce_seconds()},   {"meet_seconds", links.meet_seconds()},
      {"shared_seconds", links.shared_seconds()}};
  for (const auto& [name, seconds] : times) {
    MUSTER_RETURN_IF_ERROR(CheckFiniteAtLeastZero(Field(path, name), seconds));
  }
  return LinkSpeeds{.ranks = links.ranks(),
                    .latency_seconds = links.latency_seconds(),
                    .message_seconds = links.message_seconds(),
                    .wire_seconds = links.wire_seconds(),
                    .one_way_seconds = links.one_way_seconds(),
                    .reduce_seconds = links.reduce_seconds(),
                    .meet_seconds = links.meet_seconds(),
                    .shared_seconds = links.shared_seconds()};
}

v1::Hello HelloToProto(const Hello& hello) {
  v1::Hello proto;
  *proto.mutable_self() = ToProto(hello.self);
  proto.set_protocol_version(hello.protocol_version);
  proto.set_software_version(hello.software_version);
  proto.set_fleet_id(hello.fleet_id);
  proto.set_highest_epoch(hello.highest_epoch);
  proto.set_highest_term(hello.highest_term);
  if (hello.memory != MemoryBudget()) {
    proto.mutable_memory()->set_process_bytes(hello.memory.process_bytes);
    proto.mutable_memory()->set_host_bytes(hello.memory.host_bytes);
  }
  return proto;
}

absl::StatusOr<Hello> HelloFromProto(const v1::Hello& hello) {
  Hello result;
  if (!hello.has_self()) return MissingField("hello.self");
  MUSTER_ASSIGN_OR_RETURN(result.self, FromProto(hello.self(), "hello.self"));
  result.protocol_version = hello.protocol_version();
  MUSTER_RETURN_IF_ERROR(
      CheckText("hello.software_version", hello.software_version(), kMaxNameBytes));
  result.software_version = hello.software_version();
  MUSTER_RETURN_IF_ERROR(CheckText("hello.fleet_id", hello.fleet_id(), kMaxIdBytes));
  result.fleet_id = hello.fleet_id();
  // The coordinator goes beyond what any worker has heard of: nonsense here would stick.
  MUSTER_RETURN_IF_ERROR(CheckEpoch("hello.highest_epoch", hello.highest_epoch()));
  MUSTER_RETURN_IF_ERROR(CheckEpoch("hello.highest_term", hello.highest_term()));
  result.highest_epoch = hello.highest_epoch();
  result.highest_term = hello.highest_term();
  MUSTER_RETURN_IF_ERROR(
      CheckRange("hello.memory.process_bytes", hello.memory().process_bytes(), 0, INT64_MAX));
  MUSTER_RETURN_IF_ERROR(
      CheckRange("hello.memory.host_bytes", hello.memory().host_bytes(), 0, INT64_MAX));
  result.memory = {.process_bytes = hello.memory().process_bytes(),
                   .host_bytes = hello.memory().host_bytes()};
  return result;
}

v1::WorkerStatus StatusToProto(const WorkerStatus& status) {
  v1::WorkerStatus proto;
  proto.set_sequence(status.sequence);
  proto.set_phase(ToProto(status.phase));
  proto.set_job_id(status.job);
  proto.set_seen_epoch(status.seen_epoch);
  proto.set_answered_epoch(status.answered_epoch);
  proto.set_active_epoch(status.active_epoch);
  if (status.has_state) *proto.mutable_applied() = ToProto(status.applied);
  *proto.mutable_stable() = ToProto(status.stable);
  if (status.holdings != Holdings()) {
    proto.mutable_holdings()->set_map(status.holdings.map);
    proto.mutable_holdings()->set_next(status.holdings.next);
    proto.mutable_holdings()->set_whole(status.holdings.whole);
  }
  if (status.prepared) {
    proto.mutable_prepared()->set_step(status.prepared->step);
    proto.mutable_prepared()->set_epoch(status.prepared->epoch);
  }
  if (status.record) *proto.mutable_record() = ToProto(*status.record);
  if (status.learned) *proto.mutable_learned() = ToProto(*status.learned);
  proto.set_caught_up(status.caught_up);
  proto.set_drain_requested(status.drain_requested);
  proto.set_failure(TextForPeople(status.failure, kMaxTextBytes));
  if (status.durable) *proto.mutable_durable() = ReportToProto(*status.durable);
  if (status.committed) *proto.mutable_committed() = ReportToProto(*status.committed);
  if (status.progress) *proto.mutable_progress() = ToProto(*status.progress);
  if (status.final_report) *proto.mutable_final_report() = ToProto(*status.final_report);
  if (status.path) *proto.mutable_path() = ToProto(*status.path);
  if (status.wait) *proto.mutable_wait() = ToProto(*status.wait);
  if (status.state_size) *proto.mutable_state_size() = SizeToProto(*status.state_size);
  if (status.links) *proto.mutable_links() = LinksToProto(*status.links);
  if (status.checkpoint_failure) {
    v1::CheckpointFailure& failure = *proto.mutable_checkpoint_failure();
    *failure.mutable_tag() = ToProto(status.checkpoint_failure->tag);
    failure.set_error(TextForPeople(status.checkpoint_failure->error, kMaxTextBytes));
  }
  return proto;
}

absl::StatusOr<WorkerStatus> StatusFromProto(const v1::WorkerStatus& status) {
  WorkerStatus result;
  result.sequence = status.sequence();
  MUSTER_ASSIGN_OR_RETURN(result.phase, FromProto(status.phase(), "status.phase"));
  MUSTER_RETURN_IF_ERROR(CheckText("status.job_id", status.job_id(), kMaxIdBytes));
  result.job = status.job_id();
  MUSTER_RETURN_IF_ERROR(CheckEpoch("status.seen_epoch", status.seen_epoch()));
  MUSTER_RETURN_IF_ERROR(CheckEpoch("status.answered_epoch", status.answered_epoch()));
  MUSTER_RETURN_IF_ERROR(CheckEpoch("status.active_epoch", status.active_epoch()));
  result.seen_epoch = status.seen_epoch();
  result.answered_epoch = status.answered_epoch();
  result.active_epoch = status.active_epoch();
  if (status.has_applied()) {
    result.has_state = true;
    MUSTER_ASSIGN_OR_RETURN(result.applied, FromProto(status.applied(), "status.applied"));
  }
  MUSTER_ASSIGN_OR_RETURN(result.stable, FromProto(status.stable(), "status.stable"));
  MUSTER_RETURN_IF_ERROR(CheckEpoch("status.holdings.map", status.holdings().map()));
  MUSTER_RETURN_IF_ERROR(CheckEpoch("status.holdings.next", status.holdings().next()));
  result.holdings = {.map = status.holdings().map(),
                     .next = status.holdings().next(),
                     .whole = status.holdings().whole()};
  if (status.has_prepared()) {
    MUSTER_RETURN_IF_ERROR(
        CheckRange("status.prepared.step", status.prepared().step(), 1, kMaxJobSteps));
    MUSTER_RETURN_IF_ERROR(CheckEpoch("status.prepared.epoch", status.prepared().epoch()));
    result.prepared =
        Prepared{.step = status.prepared().step(), .epoch = status.prepared().epoch()};
  }
  if (status.has_record()) {
    MUSTER_ASSIGN_OR_RETURN(result.record, FromProto(status.record(), "status.record"));
  }
  if (status.has_learned()) {
    MUSTER_ASSIGN_OR_RETURN(result.learned, FromProto(status.learned(), "status.learned"));
  }
  result.caught_up = status.caught_up();
  result.drain_requested = status.drain_requested();
  MUSTER_RETURN_IF_ERROR(CheckText("status.failure", status.failure(), kMaxTextBytes));
  result.failure = status.failure();
  if (status.has_durable()) {
    MUSTER_ASSIGN_OR_RETURN(result.durable, ReportFromProto(status.durable(), "status.durable"));
  }
  if (status.has_committed()) {
    MUSTER_ASSIGN_OR_RETURN(result.committed,
                            ReportFromProto(status.committed(), "status.committed"));
  }
  if (status.has_progress()) {
    MUSTER_ASSIGN_OR_RETURN(result.progress, FromProto(status.progress(), "status.progress"));
  }
  if (status.has_final_report()) {
    MUSTER_ASSIGN_OR_RETURN(result.final_report,
                            FromProto(status.final_report(), "status.final_report"));
  }
  if (status.has_path()) {
    MUSTER_ASSIGN_OR_RETURN(result.path, FromProto(status.path(), "status.path"));
  }
  if (status.has_wait()) {
    MUSTER_ASSIGN_OR_RETURN(result.wait, FromProto(status.wait(), "status.wait"));
  }
  if (status.has_state_size()) {
    MUSTER_ASSIGN_OR_RETURN(result.state_size,
                            SizeFromProto(status.state_size(), "status.state_size"));
  }
  if (status.has_links()) {
    MUSTER_ASSIGN_OR_RETURN(result.links, LinksFromProto(status.links(), "status.links"));
  }
  if (status.has_checkpoint_failure()) {
    const v1::CheckpointFailure& failure = status.checkpoint_failure();
    CheckpointFailure& taken = result.checkpoint_failure.emplace();
    MUSTER_ASSIGN_OR_RETURN(taken.tag, TagOf(failure, "status.checkpoint_failure"));
    MUSTER_RETURN_IF_ERROR(
        CheckText("status.checkpoint_failure.error", failure.error(), kMaxTextBytes));
    taken.error = failure.error();
  }
  return result;
}

v1::Suspicion SuspicionToProto(const Suspicion& suspicion) {
  v1::Suspicion proto;
  proto.set_epoch(suspicion.epoch);
  proto.set_suspect(suspicion.suspect.value);
  proto.set_reason(TextForPeople(suspicion.reason, kMaxTextBytes));
  return proto;
}

absl::StatusOr<Suspicion> SuspicionFromProto(const v1::Suspicion& suspicion) {
  // Without a suspect, the link failed and neither end is to blame more than the other.
  MUSTER_RETURN_IF_ERROR(CheckText("suspicion.reason", suspicion.reason(), kMaxTextBytes));
  MUSTER_RETURN_IF_ERROR(CheckEpoch("suspicion.epoch", suspicion.epoch()));
  return Suspicion{.epoch = suspicion.epoch(),
                   .suspect = Incarnation{suspicion.suspect()},
                   .reason = suspicion.reason()};
}

}  // namespace

v1::SessionRequest ToProto(const WorkerMessage& message) {
  v1::SessionRequest proto;
  if (const auto* hello = std::get_if<Hello>(&message)) {
    *proto.mutable_hello() = HelloToProto(*hello);
  } else if (const auto* status = std::get_if<WorkerStatus>(&message)) {
    *proto.mutable_status() = StatusToProto(*status);
  } else {
    *proto.mutable_suspicion() = SuspicionToProto(std::get<Suspicion>(message));
  }
  return proto;
}

absl::StatusOr<WorkerMessage> FromProto(const v1::SessionRequest& request) {
  switch (request.message_case()) {
    case v1::SessionRequest::kHello:
      return HelloFromProto(request.hello());
    case v1::SessionRequest::kStatus:
      return StatusFromProto(request.status());
    case v1::SessionRequest::kSuspicion:
      return SuspicionFromProto(request.suspicion());
    case v1::SessionRequest::MESSAGE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("session request: is empty or of a kind not known here");
}

}  // namespace muster
