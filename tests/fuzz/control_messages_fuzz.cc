// Messages of the control plane: from their wire form to plain values.
#include <random>

#include "base/check.h"
#include "google/protobuf/stubs/logging.h"
#include "proto/convert/control.h"
#include "proto/convert/job.h"
#include "tests/fuzz/targets.h"
#include "tests/proto/convert/random_messages.h"
#include "tests/proto/convert/valid_job.h"

namespace muster {
namespace {

using absl::StatusCode;

constexpr int kSeeds = 12;

// protobuf writes a line for each string that is not UTF-8; here they come by the thousand.
template <typename Message>
bool Parse(absl::string_view bytes, Message* message) {
  const google::protobuf::LogSilencer silencer;
  return message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

// Values are compared in their wire form: a number may be NaN, which equals nothing.
FuzzOutcome RunSessionRequest(absl::string_view bytes) {
  v1::SessionRequest request;
  if (!Parse(bytes, &request)) return FuzzOutcome::kRefused;
  const absl::StatusOr<WorkerMessage> message = FromProto(request);
  if (!message.ok()) return Refused(message.status(), {StatusCode::kInvalidArgument});
  const absl::StatusOr<WorkerMessage> again = FromProto(ToProto(*message));
  MUSTER_CHECK(again.ok()) << again.status().ToString();
  MUSTER_CHECK(ToProto(*again).SerializeAsString() == ToProto(*message).SerializeAsString());
  return FuzzOutcome::kAccepted;
}

std::vector<std::string> SessionRequestSeeds() {
  std::mt19937_64 random(1);
  std::vector<std::string> seeds;
  for (int i = 0; i < kSeeds; ++i) {
    seeds.push_back(ToProto(RandomWorkerMessage(random)).SerializeAsString());
  }
  return seeds;
}

FuzzOutcome RunSessionResponse(absl::string_view bytes) {
  v1::SessionResponse response;
  if (!Parse(bytes, &response)) return FuzzOutcome::kRefused;
  const absl::StatusOr<DirectiveMessage> message = FromProto(response);
  if (!message.ok()) return Refused(message.status(), {StatusCode::kInvalidArgument});
  v1::SessionResponse encoded = ToProto(message->term, message->directive);
  if (response.has_job()) *encoded.mutable_job() = response.job();
  const absl::StatusOr<DirectiveMessage> again = FromProto(encoded);
  MUSTER_CHECK(again.ok()) << again.status().ToString();
  MUSTER_CHECK(ToProto(again->term, again->directive).SerializeAsString() ==
               ToProto(message->term, message->directive).SerializeAsString());
  return FuzzOutcome::kAccepted;
}

std::vector<std::string> SessionResponseSeeds() {
  std::mt19937_64 random(2);
  std::vector<std::string> seeds;
  for (int i = 0; i < 2 * kSeeds; ++i) {
    const Directive directive = RandomDirective(random);
    v1::SessionResponse response = ToProto(1, directive);
    if (JobNamedBy(directive) != nullptr) *response.mutable_job() = ValidJob();
    seeds.push_back(response.SerializeAsString());
  }
  return seeds;
}

FuzzOutcome RunJobDescription(absl::string_view bytes) {
  v1::JobDescription job;
  if (!Parse(bytes, &job)) return FuzzOutcome::kRefused;
  const absl::StatusOr<JobSpec> spec = JobSpecFromProto(job);
  if (!spec.ok()) return Refused(spec.status(), {StatusCode::kInvalidArgument});
  // What everybody relies on without looking again.
  MUSTER_CHECK(spec->training.micro_batch >= 1);
  MUSTER_CHECK(spec->training.global_batch % spec->training.micro_batch == 0);
  MUSTER_CHECK(spec->training.learning_rate.peak > 0);
  MUSTER_CHECK(spec->workers.min >= 1 && spec->workers.min <= spec->workers.start);
  MUSTER_CHECK(spec->workers.start <= spec->workers.max && spec->workers.max <= 1'024);
  // The most samples that a data set may have.
  const absl::StatusOr<Step> steps = ResolveSteps(*spec, int64_t{0xffffffff});
  if (steps.ok()) {
    MUSTER_CHECK(*steps >= 1 && *steps <= kMaxJobSteps) << *steps;
  } else {
    Refused(steps.status(), {StatusCode::kInvalidArgument});
  }
  return FuzzOutcome::kAccepted;
}

std::vector<std::string> JobDescriptionSeeds() {
  v1::JobDescription epochs = ValidJob();
  epochs.mutable_training()->clear_steps();
  epochs.mutable_training()->set_epochs(2.5);
  epochs.mutable_training()->mutable_optimizer()->mutable_adamw()->set_beta1(0.8);
  epochs.mutable_model()->mutable_cnn()->add_channels(8);
  epochs.mutable_model()->mutable_cnn()->add_hidden(16);
  v1::JobDescription automatic = ValidJob();
  automatic.clear_strategy();
  automatic.mutable_strategy()->set_policy(v1::Strategy::AUTO);
  return {ValidJob().SerializeAsString(), epochs.SerializeAsString(),
          automatic.SerializeAsString()};
}

}  // namespace

const FuzzTarget kSessionRequestTarget = {"session_request", RunSessionRequest, SessionRequestSeeds,
                                          4'096};
const FuzzTarget kSessionResponseTarget = {"session_response", RunSessionResponse,
                                           SessionResponseSeeds, 4'096};
const FuzzTarget kJobDescriptionTarget = {"job_description", RunJobDescription, JobDescriptionSeeds,
                                          4'096};

}  // namespace muster
