// The client against a small coordinator of its own.
#include "client/coordinator_client.h"

#include <atomic>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "muster/v1/coordinator.grpc.pb.h"
#include "proto/rpc/server.h"
#include "tests/wait_until.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class FakeCoordinator final : public v1::Coordinator::Service {
 public:
  grpc::Status SubmitJob(grpc::ServerContext*, const v1::SubmitJobRequest* request,
                         v1::SubmitJobResponse* response) override {
    absl::MutexLock lock(&mutex_);
    request_ids_.insert(request->request_id());
    ++submissions_;
    if (request->description().name() == "bad") {
      return {grpc::StatusCode::INVALID_ARGUMENT, "training.epochs: must be positive"};
    }
    if (submissions_ <= failures_) return {grpc::StatusCode::UNAVAILABLE, "starting"};
    response->mutable_job()->set_id("job-1");
    return grpc::Status::OK;
  }
  grpc::Status GetJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                      v1::GetJobResponse* response) override {
    if (request->job_id() == "slow") {
      EXPECT_TRUE(WaitUntil([context] { return context->IsCancelled(); }));
      return grpc::Status::CANCELLED;
    }
    if (request->job_id() != "job-1") return {grpc::StatusCode::NOT_FOUND, "no such job"};
    response->mutable_job()->set_id("job-1");
    return grpc::Status::OK;
  }
  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override {
    // 250 jobs in pages.
    const int begin = request->page_token().empty() ? 0 : std::stoi(request->page_token());
    const int end = std::min(250, begin + request->page_size());
    for (int i = begin; i < end; ++i) response->add_jobs()->set_id(absl::StrCat(i));
    if (end < 250) response->set_next_page_token(absl::StrCat(end));
    return grpc::Status::OK;
  }
  grpc::Status WatchJob(grpc::ServerContext*, const v1::WatchJobRequest* request,
                        grpc::ServerWriter<v1::WatchJobResponse>* writer) override {
    if (request->job_id() != "job-1") return {grpc::StatusCode::NOT_FOUND, "no such job"};
    const int stream = ++watches_;
    if (stream > 1 && goes_for_good_) return {grpc::StatusCode::UNAVAILABLE, "gone"};
    v1::WatchJobResponse response;
    response.mutable_job()->set_id("job-1");
    response.mutable_job()->set_state(v1::JOB_STATE_RUNNING);
    response.mutable_job()->mutable_progress()->set_step(stream);
    writer->Write(response);
    // The first streams break.
    if (stream == 1) return {grpc::StatusCode::UNAVAILABLE, "going away"};
    if (stream == 2) return grpc::Status::OK;
    if (stream == 3) return grpc::Status::CANCELLED;  // a shutdown that does not wait
    response.mutable_job()->set_state(v1::JOB_STATE_SUCCEEDED);
    writer->Write(response);
    return grpc::Status::OK;
  }

  // After the first stream there is no other.
  void GoForGood() { goes_for_good_ = true; }
  void FailFirst(int count) {
    absl::MutexLock lock(&mutex_);
    failures_ = count;
  }
  size_t request_ids() {
    absl::MutexLock lock(&mutex_);
    return request_ids_.size();
  }

 private:
  absl::Mutex mutex_;
  std::set<std::string> request_ids_;
  int submissions_ = 0;
  int failures_ = 0;
  std::atomic<int> watches_ = 0;
  std::atomic<bool> goes_for_good_ = false;
};

class CoordinatorClientTest : public ::testing::Test {
 protected:
  CoordinatorClientTest()
      : server_(StartServer({.listen_address = "127.0.0.1:0", .services = {&fake_}}).value()),
        client_({.address = server_.address}) {}
  ~CoordinatorClientTest() override {
    server_.server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5));
  }

  FakeCoordinator fake_;
  RunningServer server_;
  CoordinatorClient client_;
};

TEST_F(CoordinatorClientTest, SubmissionIsRepeatedUnderOneRequestId) {
  fake_.FailFirst(2);
  const auto job = client_.SubmitJob({});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->id(), "job-1");
  EXPECT_EQ(fake_.request_ids(), 1u);
  ASSERT_TRUE(client_.SubmitJob({}).ok());
  EXPECT_EQ(fake_.request_ids(), 2u);
  ASSERT_TRUE(client_.SubmitJob({}, "mine").ok());
  ASSERT_TRUE(client_.SubmitJob({}, "mine").ok());
  EXPECT_EQ(fake_.request_ids(), 3u);
}

TEST_F(CoordinatorClientTest, RefusalsKeepTheirCodeAndText) {
  v1::JobDescription bad;
  bad.set_name("bad");
  const auto job = client_.SubmitJob(bad);
  EXPECT_TRUE(absl::IsInvalidArgument(job.status()));
  EXPECT_THAT(std::string(job.status().message()), HasSubstr("training.epochs: must be positive"));
  EXPECT_TRUE(absl::IsNotFound(client_.GetJob("x").status()));
  EXPECT_TRUE(absl::IsNotFound(client_.WatchJob("x", [](const auto&) { return true; }).status()));
}

TEST_F(CoordinatorClientTest, ListsPageByPage) {
  EXPECT_EQ(client_.ListJobs(1000).value().size(), 250u);
  const auto some = client_.ListJobs(120).value();
  ASSERT_EQ(some.size(), 120u);
  EXPECT_EQ(some.back().id(), "119");
}

TEST_F(CoordinatorClientTest, WatchGoesOnAfterALostConnection) {
  std::vector<int64_t> steps;
  int lost = 0;
  const auto job = client_.WatchJob(
      "job-1",
      [&](const v1::Job& update) {
        steps.push_back(update.progress().step());
        return true;
      },
      [&](const absl::Status& status) {
        EXPECT_TRUE(absl::IsUnavailable(status)) << status;
        ++lost;
      });
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(steps, ElementsAre(1, 2, 3, 4, 4));
  EXPECT_EQ(lost, 3);
}

TEST_F(CoordinatorClientTest, WatchGivesUpACoordinatorThatIsGoneForLong) {
  fake_.GoForGood();
  CoordinatorClient client({.address = server_.address, .watch_patience = absl::Milliseconds(300)});
  int lost = 0;
  const absl::Status status =
      client
          .WatchJob(
              "job-1", [](const auto&) { return true; }, [&](const absl::Status&) { ++lost; })
          .status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("gave up following job-1 after 300ms without its coordinator"));
  EXPECT_EQ(lost, 1);
}

TEST_F(CoordinatorClientTest, WatchEndsWhenNobodyWantsMore) {
  EXPECT_TRUE(
      absl::IsCancelled(client_.WatchJob("job-1", [](const auto&) { return false; }).status()));
}

TEST_F(CoordinatorClientTest, ACallHasADeadline) {
  CoordinatorClient hasty({.address = server_.address, .timeout = absl::Milliseconds(50)});
  const absl::Status status = hasty.GetJob("slow").status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("did not answer within 50ms"));
}

TEST_F(CoordinatorClientTest, ShutdownEndsCallsUnderWay) {
  absl::Status status;
  std::thread caller([&] { status = client_.GetJob("slow").status(); });
  client_.Shutdown();
  caller.join();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_TRUE(absl::IsCancelled(client_.GetJob("job-1").status()));
}

TEST(CoordinatorClientErrorsTest, NobodyListens) {
  // Port 1 needs privileges and is assigned to a service nobody runs.
  CoordinatorClient client({.address = "127.0.0.1:1"});
  const absl::Status status = client.GetJob("job-1").status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("coordinator 127.0.0.1:1 cannot be reached"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("muster-coordinator --listen 127.0.0.1:1"));
  // One that has never been reached is not waited for as long as one that was lost.
  CoordinatorClient watcher({.address = "127.0.0.1:1",
                             .timeout = absl::Milliseconds(50),
                             .watch_patience = absl::InfiniteDuration()});
  EXPECT_TRUE(
      absl::IsUnavailable(watcher.WatchJob("x", [](const auto&) { return true; }).status()));
}

TEST(CoordinatorClientErrorsTest, WhoIsElsewhereIsNotStartedHere) {
  // Names that end so are never given to anybody (RFC 6761).
  CoordinatorClient client({.address = "nohost.invalid:7070"});
  const absl::Status status = client.GetJob("job-1").status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("muster-coordinator --listen")));
  if (absl::IsUnavailable(status)) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("nohost.invalid does not resolve here"));
  }
}

TEST(CoordinatorClientErrorsTest, AnotherServerAnswers) {
  // Any gRPC server that is no coordinator, such as a worker's.
  const RunningServer server = StartServer({.listen_address = "127.0.0.1:0"}).value();
  CoordinatorClient client({.address = server.address});
  const absl::Status status = client.ListMembers().status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("is that the right address"));
  server.server->Shutdown();
}

TEST(CoordinatorClientErrorsTest, AnAddressOfAnotherForm) {
  CoordinatorClient client({.address = "localhost"});
  EXPECT_TRUE(absl::IsInvalidArgument(client.ListMembers().status()));
  EXPECT_TRUE(absl::IsInvalidArgument(client.SubmitJob({}).status()));
}

}  // namespace
}  // namespace muster
