// Sessions of workers, good and bad, over loopback.
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <fstream>
#include <string>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/convert/control.h"
#include "tests/server/rpc/fake_worker.h"
#include "tests/server/rpc/test_coordinator.h"
#include "tests/wait_until.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Case = v1::SessionResponse::DirectiveCase;

TEST(CoordinatorSession, WelcomesAWorkerAndListsIt) {
  CoordinatorServerOptions options;
  options.core.fleet_id = "fleet-7";
  options.core.heartbeat = absl::Milliseconds(123);
  TestCoordinator coordinator(options);
  FakeWorker worker(coordinator.address(), TestHello("worker-0", 11));
  const std::optional<v1::SessionResponse> response = worker.Await(Case::kWelcome);
  ASSERT_TRUE(response.has_value());
  EXPECT_EQ(response->term(), 1u);
  EXPECT_EQ(response->welcome().fleet_id(), "fleet-7");
  EXPECT_EQ(response->welcome().heartbeat_ms(), 123);
  const v1::ListMembersResponse members = coordinator.Members();
  EXPECT_EQ(members.fleet_id(), "fleet-7");
  ASSERT_EQ(members.members_size(), 1);
  EXPECT_EQ(members.members(0).member().name(), "worker-0");
  EXPECT_TRUE(members.members(0).attached());
  EXPECT_EQ(members.members(0).rank(), -1);
}

TEST(CoordinatorSession, DirectivesCarryTheJobWithItsStepsResolved) {
  const std::string images = testing::TempDir() + "/session_test_images";
  std::ofstream(images, std::ios::binary) << std::string("\0\0\x08\x03\0\0\x01\0", 8);  // 256
  TestCoordinator coordinator;
  v1::JobDescription description = TestJob();
  description.mutable_data()->mutable_idx()->set_train_images(images);
  description.mutable_training()->set_steps(0);
  description.mutable_training()->set_epochs(2.5);
  const v1::Job job = coordinator.Submit(description);
  EXPECT_EQ(job.total_steps(), 20);
  EXPECT_EQ(job.description().training().epochs(), 2.5);

  FakeWorker worker(coordinator.address(), TestHello("worker-0", 11), /*obey=*/true);
  const std::optional<v1::SessionResponse> propose = worker.Await(Case::kPropose);
  ASSERT_TRUE(propose.has_value());
  EXPECT_EQ(propose->job().training().steps(), 20);
  EXPECT_EQ(propose->job().training().epochs(), 0);
  const std::optional<v1::SessionResponse> activate = worker.Await(Case::kActivate);
  ASSERT_TRUE(activate.has_value());
  const absl::StatusOr<DirectiveMessage> decoded = FromProto(*activate);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->job->training.steps, 20);
  EXPECT_EQ(std::get<Activate>(decoded->directive).view.job, job.id());

  coordinator.Cancel(job.id());
  const std::optional<v1::SessionResponse> end = worker.Await(Case::kEndJob);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->end_job().outcome(), v1::JOB_STATE_CANCELLED);
}

TEST(CoordinatorSession, ALostSessionIsADeathAfterTheLease) {
  CoordinatorServerOptions options;
  options.core.heartbeat = absl::Milliseconds(20);
  options.core.lease = absl::Milliseconds(200);
  TestCoordinator coordinator(options);
  auto worker = std::make_unique<FakeWorker>(coordinator.address(), TestHello("worker-0", 11));
  ASSERT_TRUE(worker->Await(Case::kWelcome).has_value());
  worker.reset();
  EXPECT_TRUE(WaitUntil([&] { return coordinator.Members().members_size() == 0; }));
}

TEST(CoordinatorSession, AWorkerOfAnotherVersionIsRefusedForGood) {
  TestCoordinator coordinator;
  Hello hello = TestHello("worker-0", 11);
  hello.protocol_version += 1;
  FakeWorker worker(coordinator.address(), hello);
  const std::optional<v1::SessionResponse> response = worker.Await(Case::kEvicted);
  ASSERT_TRUE(response.has_value());
  EXPECT_TRUE(response->evicted().permanent());
  EXPECT_THAT(response->evicted().reason(), HasSubstr("install the same version of Muster"));
  EXPECT_EQ(worker.AwaitEnd().error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(coordinator.Members().members_size(), 0);
}

TEST(CoordinatorSession, MoreWorkersThanAllowedAreRefused) {
  CoordinatorServerOptions options;
  options.core.max_workers = 1;
  TestCoordinator coordinator(options);
  FakeWorker first(coordinator.address(), TestHello("worker-0", 11));
  ASSERT_TRUE(first.Await(Case::kWelcome).has_value());
  FakeWorker second(coordinator.address(), TestHello("worker-1", 12));
  const std::optional<v1::SessionResponse> response = second.Await(Case::kEvicted);
  ASSERT_TRUE(response.has_value());
  EXPECT_THAT(response->evicted().reason(), HasSubstr("the fleet has its 1 workers"));
}

TEST(CoordinatorSession, ASecondStreamOfAnIncarnationReplacesTheFirst) {
  TestCoordinator coordinator;
  FakeWorker first(coordinator.address(), TestHello("worker-0", 11));
  ASSERT_TRUE(first.Await(Case::kWelcome).has_value());
  FakeWorker second(coordinator.address(), TestHello("worker-0", 11));
  ASSERT_TRUE(second.Await(Case::kWelcome).has_value());
  const grpc::Status end = first.AwaitEnd();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(end.error_message(), HasSubstr("replaced by a newer session"));
  // The end of the first is not taken for the end of the worker.
  ASSERT_TRUE(second.SendStatus(WorkerStatus()));
  EXPECT_TRUE(coordinator.Members().members(0).attached());
}

// ---- what a session must not do ----------------------------------------------------------------

TEST(CoordinatorSession, HelloMustComeFirstAndOnce) {
  TestCoordinator coordinator;
  FakeWorker eager(coordinator.address(), std::nullopt);
  eager.Send(ToProto(WorkerMessage(WorkerStatus())));
  grpc::Status end = eager.AwaitEnd();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(end.error_message(), "a session starts with hello");

  FakeWorker polite(coordinator.address(), TestHello("worker-0", 11));
  ASSERT_TRUE(polite.Await(Case::kWelcome).has_value());
  polite.Send(ToProto(WorkerMessage(TestHello("worker-0", 12))));
  end = polite.AwaitEnd();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(end.error_message(), "hello: came twice in one session");
}

TEST(CoordinatorSession, HelloMustComeInTime) {
  CoordinatorServerOptions options;
  options.hello_timeout = absl::Milliseconds(50);
  TestCoordinator coordinator(options);
  FakeWorker worker(coordinator.address(), TestHello("worker-0", 11));
  ASSERT_TRUE(worker.Await(Case::kWelcome).has_value());
  FakeWorker silent(coordinator.address(), std::nullopt);
  const grpc::Status end = silent.AwaitEnd();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(end.error_message(), HasSubstr("no hello came within 50ms"));

  // The one that said hello is left alone, though its session is older than the silent one.
  EXPECT_TRUE(worker.SendStatus(WorkerStatus()));
  EXPECT_TRUE(coordinator.Members().members(0).attached());
}

TEST(CoordinatorSession, AWorkerThatNobodyCouldReachIsRefused) {
  TestCoordinator coordinator;
  const struct {
    std::string address;
    const char* problem;
  } kUnusable[] = {{"", "is missing"},
                   {"127.0.0.1", "has no port"},
                   {":5000", "has no host"},
                   {"::1:5000", "more than one colon"},
                   {"127.0.0.1:65536", "not a number from 0 to 65535"},
                   {"127.0.0.1:0", "has port 0, where nobody is"},
                   {"127.0.0.1:\x1b[31m", "must be text without control characters"},
                   {"two words:5000", "unexpected characters"},
                   {std::string(301, 'h') + ":5000", "must be at most 300 bytes"}};
  for (const auto& [address, problem] : kUnusable) {
    for (std::string Member::*field : {&Member::data_address, &Member::rpc_address}) {
      Hello hello = TestHello("worker-0", 11);
      hello.self.*field = address;
      FakeWorker worker(coordinator.address(), hello);
      // A worker that is refused so says the reason and exits.
      const grpc::Status end = worker.AwaitEnd();
      EXPECT_EQ(end.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
      EXPECT_THAT(end.error_message(),
                  AllOf(StartsWith(field == &Member::data_address ? "hello.self.data_address: "
                                                                  : "hello.self.rpc_address: "),
                        HasSubstr(problem)));
    }
  }
  EXPECT_EQ(coordinator.Members().members_size(), 0);
  FakeWorker worker(coordinator.address(), TestHello("worker-0", 11));
  EXPECT_TRUE(worker.Await(Case::kWelcome).has_value());
}

TEST(CoordinatorSession, WrongFieldsAreNamed) {
  TestCoordinator coordinator;
  v1::SessionRequest request = ToProto(WorkerMessage(TestHello("worker-0", 11)));
  request.mutable_hello()->mutable_self()->set_name("not a name");
  FakeWorker worker(coordinator.address(), std::nullopt);
  worker.Send(request);
  const grpc::Status end = worker.AwaitEnd();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(end.error_message(), HasSubstr("hello.self.name: must be"));
}

// Bytes that are no message at all, straight onto the stream.
TEST(CoordinatorSession, GarbageEndsTheSession) {
  TestCoordinator coordinator;
  const grpc::internal::RpcMethod method("/muster.v1.Fleet/Session",
                                         grpc::internal::RpcMethod::BIDI_STREAMING);
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> stream(
      grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
          coordinator.channel().get(), method, &context));
  const grpc::Slice garbage(std::string("\xff\xff\xff\xff garbage"));
  stream->Write(grpc::ByteBuffer(&garbage, 1));
  grpc::ByteBuffer response;
  EXPECT_FALSE(stream->Read(&response));
  const grpc::Status end = stream->Finish();
  EXPECT_FALSE(end.ok());
  EXPECT_NE(end.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(coordinator.Members().members_size(), 0);  // it lives
}

TEST(CoordinatorSession, ATooLargeMessageEndsTheSession) {
  TestCoordinator coordinator;
  // Beyond what the server accepts; the client of this test has no limit of its own.
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);
  const auto stub = v1::Fleet::NewStub(grpc::CreateCustomChannel(
      coordinator.address(), grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  auto stream = stub->Session(&context);
  v1::SessionRequest request = ToProto(WorkerMessage(TestHello("worker-0", 11)));
  request.mutable_hello()->set_software_version(std::string(5 << 20, 'x'));
  stream->Write(request);
  v1::SessionResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_FALSE(stream->Finish().ok());
  EXPECT_EQ(coordinator.Members().members_size(), 0);
}

TEST(CoordinatorSession, AWorkerThatTakesNothingIsDisconnected) {
  CoordinatorServerOptions options;
  options.core.lease = absl::Seconds(60);
  options.core.retransmit_after = absl::Milliseconds(2);
  options.max_queued_directives = 4;
  TestCoordinator coordinator(options);
  // Directives of 16 KiB, more than flow control lets wait on the way.
  v1::JobDescription job = TestJob();
  v1::IdxData* idx = job.mutable_data()->mutable_idx();
  for (std::string* path : {idx->mutable_train_images(), idx->mutable_train_labels(),
                            idx->mutable_test_images(), idx->mutable_test_labels()}) {
    *path = std::string(4'000, 'p');
  }
  coordinator.Submit(job);

  const auto stub = v1::Fleet::NewStub(coordinator.channel());
  grpc::ClientContext context;
  auto stream = stub->Session(&context);
  ASSERT_TRUE(stream->Write(ToProto(WorkerMessage(TestHello("worker-0", 11)))));
  // Each status shows that it has not followed, so it is told again; it never reads.
  WorkerStatus status;
  bool open = true;
  EXPECT_TRUE(WaitUntil([&] {
    ++status.sequence;
    open = open && stream->Write(ToProto(WorkerMessage(status)));
    return !open;
  }));
  EXPECT_TRUE(WaitUntil([&] {
    const v1::ListMembersResponse members = coordinator.Members();
    return members.members_size() == 0 || !members.members(0).attached();
  }));
  context.TryCancel();
  stream->Finish();
}

TEST(CoordinatorSession, SessionsAreLimited) {
  CoordinatorServerOptions options;
  options.max_sessions = 1;
  TestCoordinator coordinator(options);
  auto first = std::make_unique<FakeWorker>(coordinator.address(), TestHello("worker-0", 11));
  ASSERT_TRUE(first->Await(Case::kWelcome).has_value());
  {
    FakeWorker second(coordinator.address(), TestHello("worker-1", 12));
    EXPECT_EQ(second.AwaitEnd().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  first.reset();
  EXPECT_TRUE(WaitUntil([&] {
    FakeWorker again(coordinator.address(), TestHello("worker-1", 13));
    return again.Await(Case::kWelcome).has_value();
  }));
}

// ---- ends of the coordinator -------------------------------------------------------------------

TEST(CoordinatorSession, ShutdownSaysGoodbye) {
  TestCoordinator coordinator;
  FakeWorker worker(coordinator.address(), TestHello("worker-0", 11));
  ASSERT_TRUE(worker.Await(Case::kWelcome).has_value());
  coordinator.server().Shutdown(absl::Seconds(5));
  const grpc::Status end = worker.AwaitEnd();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(end.error_message(), "the coordinator is shutting down");
}

TEST(CoordinatorSession, ARestartOverTheSameStoreGoesOn) {
  MemoryStore store;
  std::string job;
  {
    TestCoordinator coordinator({}, &store);
    job = coordinator.Submit(TestJob("lasting"), "request-1").id();
    FakeWorker worker(coordinator.address(), TestHello("worker-0", 11), /*obey=*/true);
    ASSERT_TRUE(worker.Await(Case::kActivate).has_value());
  }
  TestCoordinator coordinator({}, &store);
  EXPECT_EQ(coordinator.Members().term(), 2u);
  const v1::Job again = coordinator.Submit(TestJob("lasting"), "request-1");
  EXPECT_EQ(again.id(), job);
  EXPECT_EQ(again.description().name(), "lasting");
  EXPECT_EQ(again.state(), v1::JOB_STATE_RUNNING);
  FakeWorker worker(coordinator.address(), TestHello("worker-0", 11));
  const std::optional<v1::SessionResponse> welcome = worker.Await(Case::kWelcome);
  ASSERT_TRUE(welcome.has_value());
  EXPECT_EQ(welcome->term(), 2u);
}

TEST(CoordinatorSession, ManySessionsComeAndGoWhileItShutsDown) {
  for (int round = 0; round < 5; ++round) {
    TestCoordinator coordinator;
    std::vector<std::unique_ptr<FakeWorker>> workers;
    for (uint64_t i = 0; i < 20; ++i) {
      workers.push_back(std::make_unique<FakeWorker>(
          coordinator.address(), TestHello("worker-" + std::to_string(i), 100 + i)));
    }
    for (size_t i = 0; i < workers.size(); i += 2) workers[i]->Cancel();
    coordinator.server().Shutdown();
    for (auto& worker : workers) EXPECT_FALSE(worker->AwaitEnd().ok());
  }
}

}  // namespace
}  // namespace muster
