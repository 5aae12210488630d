// How a job's communication is shown: paths, stragglers, operations, over loopback.
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "muster/v1/worker.grpc.pb.h"
#include "proto/rpc/server.h"
#include "tests/server/rpc/fake_worker.h"
#include "tests/server/rpc/test_coordinator.h"
#include "tests/wait_until.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Workers in the view of a running job.
class InspectionCallsTest : public ::testing::Test {
 protected:
  InspectionCallsTest() : coordinator_({}, nullptr, &registry_) {}

  // `rpc_address` is that of worker 0.
  void StartJob(int workers, const std::string& rpc_address = "127.0.0.1:2") {
    for (int i = 0; i < workers; ++i) {
      Hello hello = TestHello("worker-" + std::to_string(i), 11 + static_cast<uint64_t>(i));
      if (i == 0) hello.self.rpc_address = rpc_address;
      workers_.push_back(
          std::make_unique<FakeWorker>(coordinator_.address(), hello, /*obey=*/true));
    }
    ASSERT_TRUE(WaitUntil([&] { return coordinator_.Members().members_size() == workers; }));
    v1::JobDescription description = TestJob();
    description.mutable_workers()->set_min(workers);
    job_ = coordinator_.Submit(description).id();
    for (const auto& worker : workers_) {
      ASSERT_TRUE(worker->Await(v1::SessionResponse::kActivate).has_value());
    }
    // Ranks are the coordinator's choice.
    const v1::Job job = coordinator_.Get(job_);
    for (int rank = 0; rank < workers; ++rank) {
      for (int i = 0; i < workers; ++i) {
        if (job.view().members(rank).name() == "worker-" + std::to_string(i)) {
          by_rank_.push_back(workers_[static_cast<size_t>(i)].get());
        }
      }
    }
    ASSERT_EQ(by_rank_.size(), workers_.size());
  }
  bool Say(Rank rank, const std::function<void(WorkerStatus&)>& change) {
    WorkerStatus status = by_rank_[static_cast<size_t>(rank)]->status();
    change(status);
    return by_rank_[static_cast<size_t>(rank)]->SendStatus(status);
  }
  bool SayWait(Rank rank, std::optional<CollectiveWait> wait) {
    return Say(rank, [&](WorkerStatus& status) { status.wait = std::move(wait); });
  }
  std::string Scrape() { return prometheus::TextSerializer().Serialize(registry_.Collect()); }
  bool AwaitScrape(const std::string& text) {
    return WaitUntil([&] { return Scrape().find(text) != std::string::npos; });
  }
  grpc::Status GetOperations(const std::string& job, Rank rank) {
    grpc::ClientContext context;
    v1::GetOperationsRequest request;
    request.set_job_id(job);
    request.set_rank(rank);
    return coordinator_.stub().GetOperations(&context, request, &operations_);
  }

  prometheus::Registry registry_;
  TestCoordinator coordinator_;
  std::vector<std::unique_ptr<FakeWorker>> workers_;
  std::vector<FakeWorker*> by_rank_;
  std::string job_;
  v1::GetOperationsResponse operations_;
};

TEST_F(InspectionCallsTest, AJobShowsThePathsOfItsView) {
  StartJob(2);
  const CommunicationPath path{
      .transport = "shm",
      .why = "auto: all 2 ranks share a host",
      .algorithms = {{"all-reduce", "window", 280, 1 << 20, true, "the ranks share memory"}}};
  for (const Rank rank : {0, 1}) {
    ASSERT_TRUE(Say(rank, [&](WorkerStatus& status) { status.path = path; }));
  }
  v1::Job job;
  ASSERT_TRUE(WaitUntil([&] {
    job = coordinator_.Get(job_);
    return job.paths_size() == 1 && job.paths(0).ranks_size() == 2;
  }));
  EXPECT_EQ(job.paths(0).path().algorithms(0).most_bytes(), 1 << 20);
  EXPECT_EQ(job.paths(0).text(),
            "shm (auto: all 2 ranks share a host); all-reduce of 280 B to 1 MiB: window (auto: the "
            "ranks share memory)");
  const std::string labels = "{job=\"" + job_ + "\",provider=\"\",transport=\"";
  EXPECT_TRUE(AwaitScrape("muster_job_communication_path_info" + labels + "shm\"} 2"));
  ASSERT_TRUE(Say(1, [](WorkerStatus& status) { status.path->transport = "tcp"; }));
  ASSERT_TRUE(WaitUntil([&] { return coordinator_.Get(job_).paths_size() == 2; }));
  EXPECT_TRUE(AwaitScrape("muster_job_communication_path_info" + labels + "tcp\"} 1"));
}

TEST_F(InspectionCallsTest, AJobShowsThatItsCheckpointsFail) {
  StartJob(2);
  const auto shown = [&] { return coordinator_.Get(job_).failed_checkpoints(); };
  EXPECT_EQ(shown().size(), 0);
  for (const Rank rank : {0, 1}) {
    ASSERT_TRUE(Say(rank, [](WorkerStatus& status) {
      status.checkpoint_failure = CheckpointFailure{{1, 60, 1}, "disk full"};
    }));
  }
  ASSERT_TRUE(WaitUntil([&] { return shown().size() == 1 && shown()[0].workers_size() == 2; }));
  EXPECT_EQ(shown()[0].step(), 60);
  EXPECT_EQ(shown()[0].error(), "disk full");
  for (const Rank rank : {0, 1}) {
    ASSERT_TRUE(Say(rank, [](WorkerStatus& status) { status.checkpoint_failure.reset(); }));
  }
  ASSERT_TRUE(WaitUntil([&] { return shown().size() == 0; }));
}

TEST_F(InspectionCallsTest, AJobShowsItsStragglersWhileThereAreSome) {
  StartJob(3);
  const auto wait = [](Rank peer) {
    return CollectiveWait{.operation = "all-reduce #5",
                          .label = "bucket 3",
                          .step = 17,
                          .waits_for = {peer},
                          .waited_ms = 1'000,
                          .late = true};
  };
  // A chain: 0 waits for 2, which waits for 1, which has just been heard of.
  ASSERT_TRUE(SayWait(0, wait(2)));
  ASSERT_TRUE(SayWait(2, wait(1)));
  v1::Job job;
  ASSERT_TRUE(WaitUntil([&] {
    if (!SayWait(1, std::nullopt)) return false;
    job = coordinator_.Get(job_);
    return job.stragglers_size() == 1 && job.stragglers(0).waiting_size() == 2;
  }));
  const v1::Straggler& straggler = job.stragglers(0);
  EXPECT_EQ(straggler.rank(), 1);
  EXPECT_EQ(straggler.worker(), job.view().members(1).name());
  EXPECT_EQ(straggler.cause(), v1::Straggler::BUSY);
  EXPECT_EQ(straggler.waiter(), 2);
  EXPECT_EQ(straggler.label(), "bucket 3");
  EXPECT_EQ(straggler.step(), 17);
  EXPECT_GE(straggler.held_up_seconds(), 1.0);
  EXPECT_THAT(straggler.text(), HasSubstr("holds up 2 ranks: 'bucket 3' of step 17"));
  EXPECT_TRUE(AwaitScrape("muster_job_straggler_seconds{job=\"" + job_ + "\",rank=\"1\""));
  EXPECT_THAT(Scrape(), HasSubstr("muster_job_straggler_seconds_total{job=\"" + job_ + "\""));

  ASSERT_TRUE(SayWait(0, std::nullopt));
  ASSERT_TRUE(SayWait(2, std::nullopt));
  EXPECT_TRUE(WaitUntil([&] { return coordinator_.Get(job_).stragglers_size() == 0; }));
  EXPECT_TRUE(WaitUntil(
      [&] { return Scrape().find("muster_job_straggler_seconds{job=") == std::string::npos; }));
  EXPECT_THAT(Scrape(), HasSubstr("muster_job_straggler_seconds_total{job=\"" + job_ + "\""));
}

// A worker's server as the coordinator sees it.
class FakeInspection final : public v1::Inspection::Service {
 public:
  grpc::Status ListOperations(grpc::ServerContext* context,
                              const v1::ListOperationsRequest* request,
                              v1::ListOperationsResponse* response) override {
    if (silent) {
      while (!context->IsCancelled())
        LetTimePass(absl::Milliseconds(5), "a worker that is stopped");
      return grpc::Status::CANCELLED;
    }
    if (request->incarnation() != 11) {
      return {grpc::StatusCode::FAILED_PRECONDITION, "this worker is another one"};
    }
    response->mutable_operations()->set_epoch(1);
    v1::Operation& operation = *response->mutable_operations()->add_operations();
    operation.set_what("all-reduce #1 for " + request->job_id());
    return grpc::Status::OK;
  }
  std::atomic<bool> silent{false};
};

TEST_F(InspectionCallsTest, OperationsComeFromTheWorkerOfTheRank) {
  FakeInspection inspection;
  ServerOptions options;
  options.listen_address = "127.0.0.1:0";
  options.services = {{&inspection}};
  const RunningServer server = StartServer(options).value();
  StartJob(1, server.address);
  const grpc::Status status = GetOperations(job_, 0);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(operations_.worker(), "worker-0");
  EXPECT_EQ(operations_.rank(), 0);
  ASSERT_EQ(operations_.operations().operations_size(), 1);
  EXPECT_EQ(operations_.operations().operations(0).what(), "all-reduce #1 for " + job_);

  inspection.silent = true;
  const grpc::Status late = GetOperations(job_, 0);
  EXPECT_EQ(late.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(late.error_message(),
              AllOf(HasSubstr("worker-0"), HasSubstr(server.address), HasSubstr("did not answer")));
  ShutdownServer(*server.server, absl::ZeroDuration());
}

TEST_F(InspectionCallsTest, OperationsThatCannotBeHadSayWhy) {
  EXPECT_EQ(GetOperations("nobody", 0).error_code(), grpc::StatusCode::NOT_FOUND);
  StartJob(1);  // nobody listens at its address
  const grpc::Status dead = GetOperations(job_, 0);
  EXPECT_EQ(dead.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(dead.error_message(),
              AllOf(HasSubstr("worker worker-0 at 127.0.0.1:2"), HasSubstr("cannot be reached")));
  for (const Rank rank : {-1, 1}) {
    const grpc::Status none = GetOperations(job_, rank);
    EXPECT_EQ(none.error_code(), grpc::StatusCode::NOT_FOUND);
    EXPECT_THAT(none.error_message(), HasSubstr("it has 0 to 0"));
  }
  coordinator_.Cancel(job_);
  const grpc::Status over = GetOperations(job_, 0);
  EXPECT_EQ(over.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(over.error_message(), HasSubstr("is cancelled"));
}

}  // namespace
}  // namespace muster
