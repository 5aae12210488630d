// The Inspection service over loopback.
#include <grpcpp/client_context.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "muster/v1/worker.grpc.pb.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/limits.h"
#include "worker/rpc/inspection_service.h"
#include "worker/rpc/worker_server.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

const absl::Time kStart = absl::FromUnixMicros(1'700'000'000'000'250);

class NoState final : public StateSource {
 public:
  absl::StatusOr<std::unique_ptr<StateFeed>> Open(const LearnRequest&) override {
    return absl::FailedPreconditionError("no state");
  }
};

class FakeOperations final : public OperationSource {
 public:
  absl::StatusOr<MeshRecord> RecentOperations(Incarnation self, const JobId& job) override {
    if (self != Incarnation{7} || job != "job-1") {
      return absl::FailedPreconditionError("this worker is another one");
    }
    return record;
  }
  MeshRecord record;
};

class InspectionTest : public ::testing::Test {
 protected:
  InspectionTest()
      : server_(WorkerServer::Start({}, states_, operations_).value()),
        stub_(v1::Inspection::NewStub(NewChannel(server_->address()))) {}

  grpc::Status List(uint64_t incarnation, const std::string& job) {
    grpc::ClientContext context;
    v1::ListOperationsRequest request;
    request.set_incarnation(incarnation);
    request.set_job_id(job);
    return stub_->ListOperations(&context, request, &response_);
  }

  NoState states_;
  FakeOperations operations_;
  std::unique_ptr<WorkerServer> server_;
  std::unique_ptr<v1::Inspection::Stub> stub_;
  v1::ListOperationsResponse response_;
};

TEST_F(InspectionTest, ListsWhatIsDoneFailedAndUnderWay) {
  operations_.record.epoch = 5;
  OperationRecord done{.number = 3,
                       .what = "all-reduce #4 (f32)",
                       .label = "bucket 2",
                       .step = 17,
                       .state = OperationState::kDone,
                       .issued_at = kStart,
                       .started_at = kStart + absl::Microseconds(10),
                       .ended_at = kStart + absl::Microseconds(60)};
  OperationRecord failed = done;
  failed.state = OperationState::kFailed;
  failed.status = absl::UnavailableError("rank 1 is gone");
  OperationRecord queued{.number = 5, .what = "barrier #5", .issued_at = kStart};
  operations_.record.operations = {done, failed, queued};
  const grpc::Status status = List(7, "job-1");
  ASSERT_TRUE(status.ok()) << status.error_message();
  const v1::WorkerOperations& got = response_.operations();
  EXPECT_EQ(got.epoch(), 5u);
  ASSERT_EQ(got.operations_size(), 3);
  EXPECT_EQ(got.operations(0).number(), 3u);
  EXPECT_EQ(got.operations(0).what(), "all-reduce #4 (f32)");
  EXPECT_EQ(got.operations(0).label(), "bucket 2");
  EXPECT_EQ(got.operations(0).step(), 17);
  EXPECT_EQ(got.operations(0).state(), v1::Operation::DONE);
  EXPECT_EQ(got.operations(0).issued().seconds(), 1'700'000'000);
  EXPECT_EQ(got.operations(0).issued().nanos(), 250'000);
  EXPECT_EQ(got.operations(0).queued_us(), 10);
  EXPECT_EQ(got.operations(0).running_us(), 50);
  EXPECT_EQ(got.operations(0).error(), "");
  EXPECT_EQ(got.operations(1).state(), v1::Operation::FAILED);
  EXPECT_THAT(got.operations(1).error(), HasSubstr("rank 1 is gone"));
  EXPECT_EQ(got.operations(2).state(), v1::Operation::QUEUED);
  EXPECT_FALSE(got.operations(2).has_running_us());
  EXPECT_GT(got.operations(2).queued_us(), 0);
}

TEST_F(InspectionTest, AnotherIncarnationOrJobIsRefused) {
  for (const auto& [incarnation, job] :
       {std::pair<uint64_t, const char*>{8, "job-1"}, {7, "job"}}) {
    const grpc::Status status = List(incarnation, job);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_EQ(status.error_message(), "this worker is another one");
  }
  EXPECT_EQ(List(7, std::string(200, 'x')).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(InspectionTest, TheLongestAnswerFitsAMessage) {
  OperationRecord longest{.number = ~uint64_t{0},
                          .what = std::string(5'000, 'w'),
                          .label = std::string(5'000, '\n'),
                          .step = 1'000'000,
                          .state = OperationState::kFailed,
                          .issued_at = kStart,
                          .started_at = kStart,
                          .status = absl::UnavailableError(std::string(5'000, 'e'))};
  operations_.record.operations.assign(1'024, longest);
  const grpc::Status status = List(7, "job-1");
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response_.operations().operations_size(), 1'024);
  EXPECT_LT(response_.ByteSizeLong(), static_cast<size_t>(kMaxMessageBytes) / 2);
}

}  // namespace
}  // namespace muster
