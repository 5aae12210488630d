// Between the control-plane messages (base/control/messages.h) and their wire form.
//
// Decoding trusts nothing: unknown enum values, missing parts, negative steps, text or lists beyond
// their limits and repeated members are INVALID_ARGUMENT, with the field's path in front
// ("hello.self.name: ..."). `path` is the path of the message itself. Encoding cannot fail; texts
// for people (reasons, failures) are made to fit: cut, in one line, valid UTF-8. All functions are
// pure and thread-safe. ToProto and FromProto are inverse of each other for valid values.
#ifndef MUSTER_PROTO_CONVERT_CONTROL_H_
#define MUSTER_PROTO_CONVERT_CONTROL_H_

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/control/messages.h"
#include "base/job_spec.h"
#include "muster/v1/common.pb.h"
#include "muster/v1/coordinator.pb.h"
#include "proto/convert/field.h"

namespace muster {

// Limits of what is accepted from the wire.
inline constexpr int kMaxNameBytes = 63;      // workers, jobs, devices
inline constexpr int kMaxAddressBytes = 300;  // host:port, host identity
// An epoch, a term or a branch beyond this is nonsense: they rise by one at a time, and the next
// one must exist.
inline constexpr uint64_t kMaxEpoch = uint64_t{1} << 48;
inline constexpr int kMaxIdBytes = 128;  // job, fleet and request ids
inline constexpr int kMaxPathBytes = 4096;
inline constexpr int kMaxTextBytes = 4096;  // reasons and failures, for people
inline constexpr int kMaxMembers = 1024;    // of a view
inline constexpr int kMaxTensorFactors = 1 << 16;
inline constexpr int64_t kMaxWaitMs = int64_t{1} << 40;
inline constexpr int kMaxAlgorithms = 64;  // of a communication path

// ---- parts -----------------------------------------------------------------------------------

v1::StateTag ToProto(const StateTag& tag);
v1::CommitRecord ToProto(const CommitRecord& record);
v1::Member ToProto(const Member& member);
v1::View ToProto(const View& view);
v1::Progress ToProto(const Progress& progress);
v1::FinalReport ToProto(const FinalReport& report);
v1::CommunicationPath ToProto(const CommunicationPath& path);
v1::CollectiveWait ToProto(const CollectiveWait& wait);
v1::WorkerPhase ToProto(WorkerPhase phase);
v1::JobState ToProto(JobState state);
v1::ViewChangeCause ToProto(ViewChangeCause cause);

absl::StatusOr<StateTag> FromProto(const v1::StateTag& tag, absl::string_view path);
absl::StatusOr<CommitRecord> FromProto(const v1::CommitRecord& record, absl::string_view path);
absl::StatusOr<Member> FromProto(const v1::Member& member, absl::string_view path);
absl::StatusOr<View> FromProto(const v1::View& view, absl::string_view path);
absl::StatusOr<Progress> FromProto(const v1::Progress& progress, absl::string_view path);
absl::StatusOr<FinalReport> FromProto(const v1::FinalReport& report, absl::string_view path);
absl::StatusOr<CommunicationPath> FromProto(const v1::CommunicationPath& proto,
                                            absl::string_view path);
absl::StatusOr<CollectiveWait> FromProto(const v1::CollectiveWait& wait, absl::string_view path);
absl::StatusOr<WorkerPhase> FromProto(v1::WorkerPhase phase, absl::string_view path);
absl::StatusOr<JobState> FromProto(v1::JobState state, absl::string_view path);
absl::StatusOr<ViewChangeCause> FromProto(v1::ViewChangeCause cause, absl::string_view path);

// `named`, all of them members of `view`, none twice.
absl::StatusOr<std::vector<Incarnation>> MembersNamed(
    const google::protobuf::RepeatedField<uint64_t>& named, const View& view,
    absl::string_view path);

// The field `tag` of a message that must have one.
template <typename Message>
absl::StatusOr<StateTag> TagOf(const Message& message, absl::string_view path) {
  const std::string field = Field(path, "tag");
  if (!message.has_tag()) return MissingField(field);
  return FromProto(message.tag(), field);
}

// ---- worker to coordinator -------------------------------------------------------------------

using WorkerMessage = std::variant<Hello, WorkerStatus, Suspicion>;

v1::SessionRequest ToProto(const WorkerMessage& message);
absl::StatusOr<WorkerMessage> FromProto(const v1::SessionRequest& request);

// ---- coordinator to worker -------------------------------------------------------------------

// One directive with what rides beside it.
struct DirectiveMessage {
  Term term = 0;
  Directive directive;
  // The description of the job that the directive names, checked; absent if it names none.
  std::optional<JobSpec> job;
};

// The job that the directive names; nullptr if it names none.
const JobId* JobNamedBy(const Directive& directive);

// The caller adds the job's description; decoding requires it with Propose, Activate and Learn.
v1::SessionResponse ToProto(Term term, const Directive& directive);
absl::StatusOr<DirectiveMessage> FromProto(const v1::SessionResponse& response);

}  // namespace muster

#endif  // MUSTER_PROTO_CONVERT_CONTROL_H_
