#include "proto/convert/control.h"

#include <cmath>
#include <functional>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/proto/convert/random_messages.h"
#include "tests/proto/convert/valid_job.h"

namespace muster {
namespace {

using ::testing::StartsWith;

TEST(ControlConvert, WorkerMessagesRoundTripThroughBytes) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 3'000; ++i) {
    const WorkerMessage message = RandomWorkerMessage(random);
    v1::SessionRequest parsed;
    ASSERT_TRUE(parsed.ParseFromString(ToProto(message).SerializeAsString()));
    const absl::StatusOr<WorkerMessage> back = FromProto(parsed);
    ASSERT_TRUE(back.ok()) << back.status() << "\n" << parsed.DebugString();
    ASSERT_EQ(*back, message) << parsed.DebugString();
  }
}

TEST(ControlConvert, DirectivesRoundTripThroughBytes) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 3'000; ++i) {
    const Directive directive = RandomDirective(random);
    v1::SessionResponse response = ToProto(/*term=*/7, directive);
    const bool names_job = JobNamedBy(directive) != nullptr;
    if (names_job) *response.mutable_job() = ValidJob();
    v1::SessionResponse parsed;
    ASSERT_TRUE(parsed.ParseFromString(response.SerializeAsString()));
    const absl::StatusOr<DirectiveMessage> back = FromProto(parsed);
    ASSERT_TRUE(back.ok()) << back.status() << "\n" << parsed.DebugString();
    ASSERT_EQ(back->directive, directive) << parsed.DebugString();
    EXPECT_EQ(back->term, 7u);
    EXPECT_EQ(back->job.has_value(), names_job);
  }
}

TEST(ControlConvert, EveryEnumValueRoundTrips) {
  for (int i = 1; i <= 9; ++i) {
    const auto phase = static_cast<WorkerPhase>(i);
    EXPECT_EQ(*FromProto(ToProto(phase), "p"), phase);
  }
  for (int i = 1; i <= 7; ++i) {
    EXPECT_EQ(*FromProto(ToProto(static_cast<JobState>(i)), "s"), static_cast<JobState>(i));
    EXPECT_EQ(*FromProto(ToProto(static_cast<ViewChangeCause>(i)), "c"),
              static_cast<ViewChangeCause>(i));
  }
  EXPECT_FALSE(FromProto(v1::WORKER_PHASE_UNSPECIFIED, "p").ok());
  EXPECT_FALSE(FromProto(static_cast<v1::WorkerPhase>(10), "p").ok());
  EXPECT_FALSE(FromProto(v1::JOB_STATE_UNSPECIFIED, "s").ok());
  EXPECT_FALSE(FromProto(v1::VIEW_CHANGE_CAUSE_UNSPECIFIED, "c").ok());
}

TEST(ControlConvert, ANotFiniteStepKeepsItsLoss) {
  WorkerStatus status;
  status.record = CommitRecord{.step = 3, .loss_sum = std::nan(""), .finite = false};
  const absl::StatusOr<WorkerMessage> back = FromProto(ToProto(WorkerMessage(status)));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(std::isnan(std::get<WorkerStatus>(*back).record->loss_sum));
}

TEST(ControlConvert, TextsForPeopleAreMadeToFit) {
  WorkerStatus status;
  status.failure = "first line\nsecond \xff\xc3 line \xe2\x82\xac" + std::string(10'000, 'x');
  const v1::SessionRequest proto = ToProto(WorkerMessage(status));
  EXPECT_THAT(proto.status().failure(), StartsWith("first line second ?? line \xe2\x82\xac"));
  EXPECT_EQ(proto.status().failure().size(), static_cast<size_t>(kMaxTextBytes));
  v1::SessionRequest parsed;
  ASSERT_TRUE(parsed.ParseFromString(proto.SerializeAsString()));
  EXPECT_TRUE(FromProto(parsed).ok());
}

// ---- what is refused ---------------------------------------------------------------------------

Member Worker(const std::string& name, uint64_t incarnation) {
  return {.name = name,
          .incarnation = Incarnation{incarnation},
          .host = "h",
          .data_address = "127.0.0.1:1",
          .rpc_address = "127.0.0.1:2",
          .device = "cpu"};
}

struct BadRequest {
  const char* label;
  std::function<void(v1::SessionRequest&)> spoil;  // of a request with a Hello or a status
  const char* message;
};

class BadRequestTest : public ::testing::TestWithParam<BadRequest> {};

TEST_P(BadRequestTest, IsRefusedByFieldName) {
  v1::SessionRequest request;
  GetParam().spoil(request);
  const absl::StatusOr<WorkerMessage> back = FromProto(request);
  ASSERT_FALSE(back.ok());
  EXPECT_EQ(back.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(back.status().message()), StartsWith(GetParam().message));
}

v1::Member* Self(v1::SessionRequest& request) {
  *request.mutable_hello()->mutable_self() = ToProto(Worker("a", 1));
  return request.mutable_hello()->mutable_self();
}
v1::WorkerStatus* Status(v1::SessionRequest& request) {
  request.mutable_status()->set_phase(v1::WORKER_PHASE_IDLE);
  return request.mutable_status();
}

INSTANTIATE_TEST_SUITE_P(
    Requests, BadRequestTest,
    ::testing::Values(
        BadRequest{"Empty", [](auto& r) {}, "session request: is empty"},
        BadRequest{"HelloWithoutSelf", [](auto& r) { r.mutable_hello(); },
                   "hello.self: is missing"},
        BadRequest{"BadName", [](auto& r) { Self(r)->set_name("no spaces"); },
                   "hello.self.name: must be"},
        BadRequest{"NoIncarnation", [](auto& r) { Self(r)->set_incarnation(0); },
                   "hello.self.incarnation: is missing"},
        BadRequest{"NoDataAddress", [](auto& r) { Self(r)->clear_data_address(); },
                   "hello.self.data_address: is missing"},
        BadRequest{"LongAddress", [](auto& r) { Self(r)->set_rpc_address(std::string(301, '1')); },
                   "hello.self.rpc_address: must be at most 300 bytes, got 301"},
        BadRequest{"NoPhase", [](auto& r) { Status(r)->clear_phase(); },
                   "status.phase: must be a known phase, got number 0"},
        BadRequest{"UnknownPhase",
                   [](auto& r) { Status(r)->set_phase(static_cast<v1::WorkerPhase>(99)); },
                   "status.phase: must be a known phase, got number 99"},
        BadRequest{"NegativeStep", [](auto& r) { Status(r)->mutable_applied()->set_step(-1); },
                   "status.applied.step: must be 0 to"},
        BadRequest{"LongCheckpointError",
                   [](auto& r) {
                     v1::CheckpointFailure* failure = Status(r)->mutable_checkpoint_failure();
                     failure->mutable_tag();
                     failure->set_error(std::string(kMaxTextBytes + 1, 'e'));
                   },
                   "status.checkpoint_failure.error: must be at most"},
        BadRequest{"CheckpointFailureOfNoState",
                   [](auto& r) { Status(r)->mutable_checkpoint_failure()->set_error("e"); },
                   "status.checkpoint_failure.tag: is missing"},
        BadRequest{"HelloOfAnEpochWithoutSuccessor",
                   [](auto& r) {
                     Self(r);
                     r.mutable_hello()->set_highest_epoch(~uint64_t{0});
                   },
                   "hello.highest_epoch: must be at most 281474976710656"},
        BadRequest{"EpochWithoutSuccessor",
                   [](auto& r) { Status(r)->set_seen_epoch(~uint64_t{0}); },
                   "status.seen_epoch: must be at most 281474976710656, got 18446744073709551615"},
        BadRequest{"TagOfSuchABranch",
                   [](auto& r) { Status(r)->mutable_applied()->set_branch(~uint64_t{0}); },
                   "status.applied.branch: must be at most"},
        BadRequest{"SuspicionOfSuchAnEpoch",
                   [](auto& r) { r.mutable_suspicion()->set_epoch(kMaxEpoch + 1); },
                   "suspicion.epoch: must be at most"},
        BadRequest{"PreparedZero", [](auto& r) { Status(r)->mutable_prepared(); },
                   "status.prepared.step: must be 1 to"},
        BadRequest{"MoreCorrectThanSamples",
                   [](auto& r) {
                     Status(r)->mutable_record()->set_step(1);
                     Status(r)->mutable_record()->set_correct(1);
                   },
                   "status.record.correct: must be 0 to 0, got 1"},
        BadRequest{"FiniteNaN",
                   [](auto& r) {
                     Status(r)->mutable_record()->set_step(1);
                     Status(r)->mutable_record()->set_finite(true);
                     Status(r)->mutable_record()->set_gradient_norm(std::nan(""));
                   },
                   "status.record.gradient_norm: must be a finite number"},
        BadRequest{"ControlCharacters", [](auto& r) { Status(r)->set_failure("\x1b[31m"); },
                   "status.failure: must be text without control characters"},
        BadRequest{"CheckpointWithoutPath",
                   [](auto& r) { Status(r)->mutable_durable()->mutable_tag(); },
                   "status.durable.path: is missing"},
        BadRequest{"PathWithoutTransport", [](auto& r) { Status(r)->mutable_path(); },
                   "status.path.transport: is missing"},
        BadRequest{"TooManyAlgorithms",
                   [](auto& r) {
                     Status(r)->mutable_path()->set_transport("tcp");
                     for (int i = 0; i <= kMaxAlgorithms; ++i)
                       r.mutable_status()->mutable_path()->add_algorithms();
                   },
                   "status.path.algorithms.size: must be 0 to 64, got 65"},
        BadRequest{"AlgorithmForNoSize",
                   [](auto& r) {
                     Status(r)->mutable_path()->set_transport("tcp");
                     v1::AlgorithmInUse* use = r.mutable_status()->mutable_path()->add_algorithms();
                     use->set_collective("all-reduce");
                     use->set_algorithm("ring");
                     use->set_least_bytes(2);
                     use->set_most_bytes(1);
                   },
                   "status.path.algorithms[0].least_bytes: must be 0 to 1, got 2"},
        BadRequest{"WaitForNobody",
                   [](auto& r) { Status(r)->mutable_wait()->set_operation("barrier"); },
                   "status.wait.waits_for.size: must be 1 to 1024, got 0"},
        BadRequest{"WaitForNoRank",
                   [](auto& r) {
                     Status(r)->mutable_wait()->set_operation("barrier");
                     r.mutable_status()->mutable_wait()->add_waits_for(-1);
                   },
                   "status.wait.waits_for[0]: must be 0 to 1023, got -1"},
        BadRequest{"NegativeWait",
                   [](auto& r) {
                     Status(r)->mutable_wait()->set_operation("barrier");
                     r.mutable_status()->mutable_wait()->add_waits_for(1);
                     r.mutable_status()->mutable_wait()->set_waited_ms(-1);
                   },
                   "status.wait.waited_ms: must be 0 to"},
        BadRequest{"LongReason",
                   [](auto& r) { r.mutable_suspicion()->set_reason(std::string(4'097, 'x')); },
                   "suspicion.reason: must be at most 4096 bytes, got 4097"}),
    [](const auto& info) { return std::string(info.param.label); });

TEST(BadDirective, IsRefusedByFieldName) {
  const auto refusal = [](const v1::SessionResponse& response) {
    const absl::StatusOr<DirectiveMessage> back = FromProto(response);
    EXPECT_EQ(back.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(back.status().message());
  };
  EXPECT_THAT(refusal(ToProto(0, Pause{.epoch = 1})), StartsWith("term: is missing"));
  EXPECT_THAT(refusal(ToProto(1, Pause{})), StartsWith("pause.epoch: is missing"));
  EXPECT_THAT(refusal(ToProto(1, Pause{.epoch = kMaxEpoch + 1})),
              StartsWith("pause.epoch: must be at most"));
  v1::SessionResponse none;
  none.set_term(1);
  EXPECT_THAT(refusal(none), StartsWith("directive: is missing"));

  View view{.epoch = 1, .job = "j", .members = {Worker("a", 1), Worker("a", 2)}};
  EXPECT_THAT(refusal(ToProto(1, Activate{.view = view})),
              StartsWith("activate.view.members[1]: a (0000000000000002) is in the view twice"));
  view.members = {Worker("a", 1), Worker("b", 1)};
  EXPECT_THAT(refusal(ToProto(1, Activate{.view = view})),
              StartsWith("activate.view.members[1]: b (0000000000000001) is in the view twice"));
  view.members.clear();
  EXPECT_THAT(refusal(ToProto(1, Activate{.view = view})),
              StartsWith("activate.view.members.size: must be 1 to 1024, got 0"));
  for (int i = 0; i < 1'025; ++i) view.members.push_back(Worker("w" + std::to_string(i), i + 1));
  EXPECT_THAT(refusal(ToProto(1, Activate{.view = view})),
              StartsWith("activate.view.members.size: must be 1 to 1024, got 1025"));
  view.members.resize(1);
  EXPECT_THAT(refusal(ToProto(1, Activate{.view = view})), StartsWith("job: is missing"));
  View sharded{.epoch = 1, .job = "j", .members = {Worker("a", 1), Worker("b", 2)}};
  sharded.strategy.stage = 1;
  sharded.strategy.replicas = 0;
  EXPECT_THAT(
      refusal(ToProto(1, Activate{.view = sharded, .move = MoveSource{sharded, {Incarnation{1}}}})),
      StartsWith("activate.move.givers: do not hold every shard"));
  EXPECT_THAT(
      refusal(ToProto(1, Activate{.view = sharded, .move = MoveSource{sharded, {Incarnation{3}}}})),
      StartsWith("activate.move.givers[0]: must be a member of the view"));
  sharded.leaving = {Incarnation{1}, Incarnation{2}};
  EXPECT_THAT(refusal(ToProto(1, Activate{.view = sharded})),
              StartsWith("activate.view.leaving: names every member"));
  v1::SessionResponse bad_job = ToProto(1, Activate{.view = view});
  *bad_job.mutable_job() = ValidJob();
  bad_job.mutable_job()->clear_model();
  EXPECT_THAT(refusal(bad_job), StartsWith("job: model: needs one of"));

  EXPECT_THAT(refusal(ToProto(
                  1, Propose{.epoch = 1, .job = "j", .members = {Incarnation{5}, Incarnation{5}}})),
              StartsWith("propose.members[1]: must be an incarnation not named before"));
  EXPECT_THAT(refusal(ToProto(1, EndJob{.job = "j", .outcome = JobState::kRunning})),
              StartsWith("end_job.outcome: must be succeeded, failed or cancelled, got running"));
  EXPECT_THAT(
      refusal(ToProto(
          1,
          Welcome{.fleet_id = "f", .heartbeat_ms = 100, .lease_ms = 50, .orphan_timeout_ms = 1})),
      StartsWith("welcome.lease_ms: must be 100 to"));
}

}  // namespace
}  // namespace muster
