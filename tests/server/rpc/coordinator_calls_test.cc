// The coordinator's API as a client sees it, over loopback.
#include <grpcpp/generic/generic_stub.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "google/protobuf/wrappers.pb.h"
#include "gtest/gtest.h"
#include "tests/server/rpc/fake_worker.h"
#include "tests/server/rpc/test_coordinator.h"
#include "tests/wait_until.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(CoordinatorCalls, SubmitQueuesAndGetShows) {
  TestCoordinator coordinator;
  const v1::Job job = coordinator.Submit(TestJob("images", 12));
  EXPECT_THAT(job.id(), StartsWith("images-"));
  EXPECT_EQ(job.state(), v1::JOB_STATE_STARTING);  // first in the queue, waits for workers
  EXPECT_EQ(job.total_steps(), 12);
  EXPECT_EQ(job.description().SerializeAsString(), TestJob("images", 12).SerializeAsString());
  EXPECT_GT(job.submitted_at().seconds(), 0);
  EXPECT_EQ(job.reason(), "waiting for workers");
  EXPECT_EQ(coordinator.Submit(TestJob("next")).state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(coordinator.Get(job.id()).id(), job.id());
}

TEST(CoordinatorCalls, AQueuedJobSaysWhatItWaitsFor) {
  TestCoordinator coordinator;
  const std::string first = coordinator.Submit(TestJob("first")).id();
  const std::string second = coordinator.Submit(TestJob("second")).id();
  const std::string third = coordinator.Submit(TestJob("third")).id();
  const std::string fourth = coordinator.Submit(TestJob("fourth")).id();
  EXPECT_EQ(coordinator.Get(second).reason(), "waits for the end of " + first);
  EXPECT_EQ(coordinator.Get(third).reason(),
            "waits for the end of " + first + " and of 1 job after it");
  EXPECT_EQ(coordinator.Get(fourth).reason(),
            "waits for the end of " + first + " and of 2 jobs after it");

  // Who follows it hears when that changes.
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_job_id(third);
  const auto stream = coordinator.stub().WatchJob(&context, request);
  v1::WatchJobResponse response;
  ASSERT_TRUE(stream->Read(&response));
  coordinator.Cancel(first);
  const std::string now = "waits for the end of " + second;
  while (response.job().reason() != now && stream->Read(&response)) {
  }
  EXPECT_EQ(response.job().reason(), now);
  context.TryCancel();
  stream->Finish();
  EXPECT_EQ(coordinator.Get(second).state(), v1::JOB_STATE_STARTING);
}

TEST(CoordinatorCalls, RepeatedRequestIdMakesOneJob) {
  TestCoordinator coordinator;
  const v1::Job first = coordinator.Submit(TestJob(), "request-1");
  EXPECT_EQ(coordinator.Submit(TestJob(), "request-1").id(), first.id());
  EXPECT_NE(coordinator.Submit(TestJob(), "request-2").id(), first.id());
}

TEST(CoordinatorCalls, ARequestIdStandsForOneDescription) {
  TestCoordinator coordinator;
  const v1::Job first = coordinator.Submit(TestJob("a"), "request-1");
  coordinator.Cancel(first.id());  // also when the job has ended
  v1::JobDescription other = TestJob("a");
  other.mutable_training()->set_seed(1);
  for (const v1::JobDescription& job : {other, TestJob("b"), v1::JobDescription()}) {
    grpc::Status status;
    EXPECT_EQ(coordinator.Submit(job, "request-1", &status).id(), "");
    EXPECT_EQ(status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
    EXPECT_THAT(status.error_message(),
                StartsWith("request_id \"request-1\" has made job " + first.id()));
  }
  EXPECT_EQ(coordinator.Submit(TestJob("a"), "request-1").id(), first.id());
}

TEST(CoordinatorCalls, BadJobsAreRefusedByField) {
  TestCoordinator coordinator;
  const auto refusal = [&](const v1::JobDescription& job, const std::string& request_id = "") {
    grpc::Status status;
    coordinator.Submit(job, request_id, &status);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    return status.error_message();
  };
  v1::JobDescription job = TestJob();
  job.mutable_training()->mutable_learning_rate()->set_peak(std::nan(""));
  EXPECT_THAT(refusal(job), StartsWith("training.learning_rate.peak: must be a finite number > 0"));
  EXPECT_THAT(refusal({}), StartsWith("name: must be"));
  EXPECT_THAT(refusal(TestJob(), std::string(129, 'x')), StartsWith("request_id: must be at most"));
  job = TestJob();
  job.mutable_training()->set_steps(0);
  job.mutable_training()->set_epochs(1);
  EXPECT_THAT(refusal(job), HasSubstr("give training.steps instead"));
  job = TestJob();
  job.mutable_workers()->set_min(2'000);
  EXPECT_THAT(refusal(job), StartsWith("workers.min: must be 1 to 1024"));
}

TEST(CoordinatorCalls, FullQueueIsResourceExhausted) {
  CoordinatorServerOptions options;
  options.core.max_jobs = 2;
  TestCoordinator coordinator(options);
  coordinator.Submit(TestJob("a"));
  const v1::Job second = coordinator.Submit(TestJob("b"));
  grpc::Status status;
  coordinator.Submit(TestJob("c"), "", &status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  coordinator.Cancel(second.id());
  coordinator.Submit(TestJob("c"));
}

TEST(CoordinatorCalls, EndedJobsAreForgottenBeyondTheLimit) {
  CoordinatorServerOptions options;
  options.core.max_jobs = 3;
  TestCoordinator coordinator(options);
  std::string first;
  for (int i = 0; i < 10; ++i) {
    const v1::Job job = coordinator.Submit(TestJob());
    if (i == 0) first = job.id();
    coordinator.Cancel(job.id());
  }
  grpc::ClientContext context;
  v1::ListJobsResponse listed;
  ASSERT_TRUE(coordinator.stub().ListJobs(&context, {}, &listed).ok());
  EXPECT_LE(listed.jobs_size(), 4);
  EXPECT_GE(listed.jobs_size(), 3);
  grpc::ClientContext get;
  v1::GetJobRequest request;
  request.set_job_id(first);
  v1::GetJobResponse response;
  EXPECT_EQ(coordinator.stub().GetJob(&get, request, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST(CoordinatorCalls, UnknownJobsAreNotFound) {
  TestCoordinator coordinator;
  grpc::ClientContext get, cancel, watch;
  v1::GetJobRequest get_request;
  v1::CancelJobRequest cancel_request;
  v1::WatchJobRequest watch_request;
  for (auto* id : {get_request.mutable_job_id(), cancel_request.mutable_job_id(),
                   watch_request.mutable_job_id()}) {
    *id = "nobody";
  }
  v1::GetJobResponse got;
  v1::CancelJobResponse cancelled;
  v1::WatchJobResponse watched;
  const grpc::Status status = coordinator.stub().GetJob(&get, get_request, &got);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), StartsWith("there is no job \"nobody\""));
  EXPECT_THAT(status.error_message(), HasSubstr("`muster status` shows"));
  EXPECT_EQ(coordinator.stub().CancelJob(&cancel, cancel_request, &cancelled).error_code(),
            grpc::StatusCode::NOT_FOUND);
  auto reader = coordinator.stub().WatchJob(&watch, watch_request);
  EXPECT_FALSE(reader->Read(&watched));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST(CoordinatorCalls, CancelEndsAJobOnce) {
  TestCoordinator coordinator;
  const v1::Job job = coordinator.Submit(TestJob());
  const v1::Job cancelled = coordinator.Cancel(job.id());
  EXPECT_EQ(cancelled.state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(cancelled.reason(), "cancelled by a client");
  EXPECT_TRUE(cancelled.has_ended_at());
  const v1::Job again = coordinator.Cancel(job.id(), /*had_ended=*/true);
  EXPECT_EQ(again.SerializeAsString(), cancelled.SerializeAsString());
}

TEST(CoordinatorCalls, ListJobsPagesNewestFirst) {
  TestCoordinator coordinator;
  std::vector<std::string> submitted;
  for (int i = 0; i < 7; ++i) submitted.push_back(coordinator.Submit(TestJob()).id());
  std::vector<std::string> listed;
  v1::ListJobsRequest request;
  request.set_page_size(3);
  int pages = 0;
  do {
    grpc::ClientContext context;
    v1::ListJobsResponse response;
    ASSERT_TRUE(coordinator.stub().ListJobs(&context, request, &response).ok());
    EXPECT_LE(response.jobs_size(), 3);
    for (const v1::Job& job : response.jobs()) listed.push_back(job.id());
    // A job that comes between two pages disturbs neither.
    if (++pages == 1) coordinator.Submit(TestJob());
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(pages, 3);
  EXPECT_EQ(listed, std::vector<std::string>(submitted.rbegin(), submitted.rend()));

  for (const char* token : {"abc", "-1", "0", "99999999999999999999999"}) {
    grpc::ClientContext context;
    v1::ListJobsResponse response;
    request.set_page_token(token);
    EXPECT_EQ(coordinator.stub().ListJobs(&context, request, &response).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT)
        << token;
  }
  grpc::ClientContext context;
  v1::ListJobsResponse response;
  request.clear_page_token();
  request.set_page_size(-1);
  EXPECT_EQ(coordinator.stub().ListJobs(&context, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

// ---- watching ----------------------------------------------------------------------------------

TEST(CoordinatorCalls, WatchShowsTheStateNowEachChangeAndTheEnd) {
  TestCoordinator coordinator;
  const v1::Job job = coordinator.Submit(TestJob());
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_job_id(job.id());
  auto reader = coordinator.stub().WatchJob(&context, request);
  v1::WatchJobResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.job().state(), v1::JOB_STATE_STARTING);

  FakeWorker worker(coordinator.address(), TestHello("worker-0", 11), /*obey=*/true);
  while (response.job().state() != v1::JOB_STATE_RUNNING) ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.job().view().members(0).name(), "worker-0");
  ASSERT_TRUE(worker.Await(v1::SessionResponse::kActivate).has_value());
  ASSERT_TRUE(worker.ShowStep(3, /*loss=*/0.5));
  while (response.job().progress().step() != 2) ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.job().progress().loss(), 0.5);
  EXPECT_EQ(response.job().view_changes(0).cause(), v1::VIEW_CHANGE_CAUSE_START);

  coordinator.Cancel(job.id());
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(response.job().state(), v1::JOB_STATE_CANCELLED);
  EXPECT_TRUE(reader->Finish().ok());

  // A job that has ended already: one state, then the end.
  grpc::ClientContext late;
  reader = coordinator.stub().WatchJob(&late, request);
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.job().state(), v1::JOB_STATE_CANCELLED);
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST(CoordinatorCalls, WatchersAreLimitedAndAClosedOneFreesItsPlace) {
  CoordinatorServerOptions options;
  options.max_watchers = 1;
  TestCoordinator coordinator(options);
  v1::WatchJobRequest request;
  request.set_job_id(coordinator.Submit(TestJob()).id());
  v1::WatchJobResponse response;
  grpc::ClientContext first, second;
  auto reader = coordinator.stub().WatchJob(&first, request);
  ASSERT_TRUE(reader->Read(&response));
  auto refused = coordinator.stub().WatchJob(&second, request);
  EXPECT_FALSE(refused->Read(&response));
  EXPECT_EQ(refused->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  first.TryCancel();
  reader->Finish();
  EXPECT_TRUE(WaitUntil([&] {
    grpc::ClientContext again;
    const bool taken = coordinator.stub().WatchJob(&again, request)->Read(&response);
    again.TryCancel();
    return taken;
  }));
}

TEST(CoordinatorCalls, ShutdownEndsWatchesWithUnavailable) {
  TestCoordinator coordinator;
  v1::WatchJobRequest request;
  request.set_job_id(coordinator.Submit(TestJob()).id());
  grpc::ClientContext context;
  auto reader = coordinator.stub().WatchJob(&context, request);
  v1::WatchJobResponse response;
  ASSERT_TRUE(reader->Read(&response));
  coordinator.server().Shutdown(absl::Seconds(5));
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

// ---- daemons' common manners -------------------------------------------------------------------

TEST(CoordinatorServer, APortInUseIsAnErrorThatNamesIt) {
  TestCoordinator coordinator;
  const auto start = [](const std::string& address) {
    MemoryStore store;
    PosixFileSystem files;
    const std::unique_ptr<Logger> logger = MakeSilentLogger();
    CoordinatorServerOptions options;
    options.listen_address = address;
    return CoordinatorServer::Start(options, store, files, *logger, nullptr).status();
  };
  const absl::Status taken = start(coordinator.address());
  EXPECT_EQ(taken.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(taken.message()),
              HasSubstr("cannot listen on " + coordinator.address() + ": Address already in use"));
  EXPECT_TRUE(absl::IsInvalidArgument(start("localhost")));
  EXPECT_TRUE(absl::IsInvalidArgument(start("::1:80")));
  EXPECT_TRUE(absl::IsInvalidArgument(start("127.0.0.1:65536")));
  EXPECT_TRUE(absl::IsUnavailable(start("no-such-host.invalid:0")));
}

TEST(CoordinatorServer, ServesOnIpv6) {
  CoordinatorServerOptions options;
  options.listen_address = "[::1]:0";
  TestCoordinator coordinator(options);
  EXPECT_THAT(coordinator.address(), StartsWith("[::1]:"));
  EXPECT_EQ(coordinator.Members().members_size(), 0);
}

// The health service's messages have the same form as these two, so no generated code is needed.
using HealthStub =
    grpc::TemplatedGenericStub<google::protobuf::StringValue, google::protobuf::Int32Value>;

int Health(TestCoordinator& coordinator, const std::string& service) {
  HealthStub stub(coordinator.channel());
  grpc::ClientContext context;
  google::protobuf::StringValue request;
  request.set_value(service);
  google::protobuf::Int32Value response;
  absl::Notification done;
  grpc::Status status;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &request, &response,
                 [&](grpc::Status got) {
                   status = got;
                   done.Notify();
                 });
  done.WaitForNotification();
  return status.ok() ? response.value() : -static_cast<int>(status.error_code());
}

TEST(CoordinatorServer, AnswersHealthChecksPerServiceAndOverall) {
  constexpr int kServing = 1;
  TestCoordinator coordinator;
  EXPECT_EQ(Health(coordinator, ""), kServing);
  EXPECT_EQ(Health(coordinator, "muster.v1.Coordinator"), kServing);
  EXPECT_EQ(Health(coordinator, "muster.v1.Fleet"), kServing);
  EXPECT_EQ(Health(coordinator, "muster.v1.Nothing"),
            -static_cast<int>(grpc::StatusCode::NOT_FOUND));
}

TEST(CoordinatorServer, ListsItsServicesByReflection) {
  TestCoordinator coordinator;
  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub(coordinator.channel());
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto wait = [&] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  auto call = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  call->StartCall(nullptr);
  ASSERT_TRUE(wait());
  // ServerReflectionRequest{list_services: "*"}: field 7, a string of one byte.
  const grpc::Slice request(std::string("\x3a\x01*"));
  call->Write(grpc::ByteBuffer(&request, 1), nullptr);
  ASSERT_TRUE(wait());
  grpc::ByteBuffer response;
  call->Read(&response, nullptr);
  ASSERT_TRUE(wait());
  grpc::Slice bytes;
  ASSERT_TRUE(response.DumpToSingleSlice(&bytes).ok());
  const std::string text(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
  for (const char* service :
       {"muster.v1.Coordinator", "muster.v1.Fleet", "grpc.health.v1.Health"}) {
    EXPECT_THAT(text, HasSubstr(service));
  }
  context.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  wait();
  queue.Shutdown();
  while (wait()) {
  }
}

TEST(CoordinatorServer, ExportsMetrics) {
  prometheus::Registry registry;
  CoordinatorServerOptions options;
  TestCoordinator coordinator(options, nullptr, &registry);
  FakeWorker worker(coordinator.address(), TestHello("worker-0", 11), /*obey=*/true);
  const v1::Job job = coordinator.Submit(TestJob());
  ASSERT_TRUE(worker.Await(v1::SessionResponse::kActivate).has_value());
  ASSERT_TRUE(worker.ShowStep(5, 0.25));
  const std::vector<std::string> wanted = {
      "muster_job_step{job=\"" + job.id() + "\"} 4",
      "muster_job_loss{job=\"" + job.id() + "\"} 0.25",
      "muster_coordinator_members{state=\"attached\"} 1",
      "muster_coordinator_jobs{state=\"running\"} 1",
      "muster_coordinator_view_changes_total{cause=\"start\"} 1",
      "muster_coordinator_directives_total{kind=\"first\"}"};
  // A scrape may fall into the middle of an update, so all of them are waited for together.
  std::string text;
  EXPECT_TRUE(WaitUntil([&] {
    text = prometheus::TextSerializer().Serialize(registry.Collect());
    return std::all_of(wanted.begin(), wanted.end(), [&](const std::string& line) {
      return text.find(line) != std::string::npos;
    });
  }));
  for (const std::string& line : wanted) EXPECT_THAT(text, HasSubstr(line));

  // An epoch never falls, not even when there is no view any more.
  const std::string epoch = absl::StrCat("muster_coordinator_epoch ", worker.status().active_epoch);
  EXPECT_THAT(text, HasSubstr(epoch));
  coordinator.Cancel(job.id());
  EXPECT_TRUE(WaitUntil([&] {
    text = prometheus::TextSerializer().Serialize(registry.Collect());
    return text.find("muster_coordinator_jobs{state=\"cancelled\"} 1") != std::string::npos;
  }));
  EXPECT_THAT(text, HasSubstr(epoch));
}

}  // namespace
}  // namespace muster
