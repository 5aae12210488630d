// How long `muster switch` waits, against a small coordinator of its own.
#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/commands/job_commands.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "muster/v1/coordinator.grpc.pb.h"
#include "proto/rpc/server.h"
#include "tests/wait_until.h"

namespace muster {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::SizeIs;

// Records what calls are given of time. Nothing is ever in force.
class FakeCoordinator final : public v1::Coordinator::Service {
 public:
  grpc::Status GetJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                      v1::GetJobResponse* response) override {
    response->mutable_job()->set_id(request->job_id());
    *response->mutable_job()->mutable_strategy() = Record(context);
    // As a coordinator does that was stopped after it has recorded a switch.
    if (request->job_id() == "freezes" && was_switched()) {
      EXPECT_TRUE(WaitUntil([context] { return context->IsCancelled(); }));
    }
    return grpc::Status::OK;
  }
  grpc::Status SwitchJob(grpc::ServerContext* context, const v1::SwitchJobRequest* request,
                         v1::SwitchJobResponse* response) override {
    Record(context);
    absl::MutexLock lock(&mutex_);
    strategy_ = request->strategy();
    response->mutable_job()->set_id(request->job_id());
    *response->mutable_job()->mutable_strategy() = strategy_;
    return grpc::Status::OK;
  }

  std::vector<absl::Duration> given() {
    absl::MutexLock lock(&mutex_);
    return given_;
  }

 private:
  bool was_switched() {
    absl::MutexLock lock(&mutex_);
    return strategy_.stage() > 0;
  }
  v1::Strategy Record(grpc::ServerContext* context) {
    absl::MutexLock lock(&mutex_);
    given_.push_back(absl::FromChrono(context->deadline() - std::chrono::system_clock::now()));
    return strategy_;
  }

  absl::Mutex mutex_;
  std::vector<absl::Duration> given_ ABSL_GUARDED_BY(mutex_);
  v1::Strategy strategy_ ABSL_GUARDED_BY(mutex_);
};

class SwitchCommandTest : public testing::Test {
 protected:
  // The exit code, and what was said on standard error.
  std::pair<int, std::string> Switch(const std::string& job, absl::Duration timeout) {
    testing::internal::CaptureStderr();
    const int code =
        SwitchCommand({.coordinator = server_.address}, job, {.stage = 2}, timeout, &console_);
    return {code, testing::internal::GetCapturedStderr()};
  }

  FakeCoordinator fake_;
  RunningServer server_ =
      StartServer({.listen_address = "127.0.0.1:0", .services = {&fake_}}).value();
  Console console_{stdout, false};
};

TEST_F(SwitchCommandTest, AChangeOfNothingIsWrongUsage) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(
      SwitchCommand({.coordinator = server_.address}, "job-1", {}, absl::Seconds(9), &console_), 2);
  const std::string error = testing::internal::GetCapturedStderr();
  EXPECT_THAT(error, HasSubstr("nothing to switch"));
  EXPECT_THAT(error, HasSubstr("--stage"));
  EXPECT_THAT(error, HasSubstr("muster status job-1"));
  EXPECT_THAT(fake_.given(), SizeIs(0));
}

TEST_F(SwitchCommandTest, NoCallOutlastsTheTimeout) {
  constexpr absl::Duration kTimeout = absl::Seconds(2);
  const auto [code, error] = Switch("freezes", kTimeout);
  EXPECT_EQ(code, 1);
  EXPECT_THAT(error, HasSubstr("the switch is recorded"));
  EXPECT_THAT(error, HasSubstr("did not answer"));
  // On the wire deadlines are rounded.
  EXPECT_THAT(fake_.given(), Each(Le(2 * kTimeout)));
  EXPECT_THAT(fake_.given(), SizeIs(3));
}

TEST_F(SwitchCommandTest, ASwitchThatDoesNotComeIntoForceIsWaitedForNoLonger) {
  const auto [code, error] = Switch("slow", absl::Seconds(1));
  EXPECT_EQ(code, 1);
  EXPECT_THAT(error, HasSubstr("the switch is recorded"));
  EXPECT_THAT(error, HasSubstr("see muster status slow"));
}

}  // namespace
}  // namespace muster
