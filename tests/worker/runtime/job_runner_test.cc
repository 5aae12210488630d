// The job's thread, driven by orders as the executor gives them.
#include "worker/runtime/job_runner.h"

#include <memory>
#include <new>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "tests/base/temporary_directory.h"
#include "tests/wait_until.h"
#include "tests/worker/runtime/small_job.h"
#include "worker/device/registry.h"

namespace muster {
namespace {

// Remembers what the runner reports.
class FakeCore : public CorePort {
 public:
  Doors Dispatch(const worker::Event& event) override {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(exhausted_, false)) throw std::bad_alloc();
    if (const auto* quiesced = std::get_if<worker::Quiesced>(&event)) {
      quiesced_ = quiesced->epoch;
    } else if (const auto* failed = std::get_if<worker::JobFailed>(&event)) {
      failures_.push_back(failed->reason);
    } else if (const auto* connected = std::get_if<worker::MeshConnected>(&event)) {
      connected_ = connected->epoch;
    }
    return {};
  }
  bool AwaitQuiesced(Epoch epoch) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return quiesced_ == epoch || !failures_.empty();
    };
    return mutex_.AwaitWithTimeout(absl::Condition(&there), kTestPatience) && failures_.empty();
  }
  bool AwaitConnected(Epoch epoch) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return connected_ == epoch; };
    return mutex_.AwaitWithTimeout(absl::Condition(&there), kTestPatience);
  }
  // The next report finds no memory.
  void Exhaust() {
    absl::MutexLock lock(&mutex_);
    exhausted_ = true;
  }
  void Forgive() {
    absl::MutexLock lock(&mutex_);
    failures_.clear();
  }
  std::vector<std::string> failures() {
    absl::MutexLock lock(&mutex_);
    return failures_;
  }

 private:
  absl::Mutex mutex_;
  bool exhausted_ ABSL_GUARDED_BY(mutex_) = false;
  Epoch quiesced_ ABSL_GUARDED_BY(mutex_) = 0;
  Epoch connected_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> failures_ ABSL_GUARDED_BY(mutex_);
};

class JobRunnerTest : public ::testing::Test {
 protected:
  JobRunnerTest()
      : listener_(TcpListener::Create().value()),
        device_(CreateDevice("cpu", {}).value()),
        logger_({.level = LogLevel::kOff}),
        runner_(JobRunnerOptions{}, core_, *listener_, *device_, files_, source_, logger_) {}

  TemporaryDirectory directory_;
  PosixFileSystem files_;
  FakeCore core_;
  const std::unique_ptr<TcpListener> listener_;
  const std::unique_ptr<Device> device_;
  ReplicaStateSource source_;
  Logger logger_;
  JobRunner runner_;
};

// An order may wait behind others while many jobs come and go: it still knows its job.
TEST_F(JobRunnerTest, AnOrderForAJobOfLongAgoIsObeyed) {
  const auto spec = std::make_shared<const JobSpec>(SmallJob(files_, directory_.path()));
  Epoch epoch = 0;
  for (int job = 0; job < 20; ++job) {
    runner_.Quiesce({++epoch, absl::StrCat("job-", job), spec});
  }
  runner_.Quiesce({++epoch, "job-0", spec});
  EXPECT_TRUE(core_.AwaitQuiesced(epoch)) << absl::StrJoin(core_.failures(), "; ");
}

// A worker that stopped for want of a coordinator quiesces for an epoch nobody has proposed; the
// next job's first view may have that number.
TEST_F(JobRunnerTest, AViewOfTheEpochLastQuiescedForConnectsAfterTheJobIsDropped) {
  const auto spec = std::make_shared<const JobSpec>(SmallJob(files_, directory_.path()));
  runner_.SetIdentity(Incarnation{1}, "fleet");
  runner_.Quiesce({4, "first", spec});
  runner_.Drop(absl::OkStatus(), [] {});
  runner_.Quiesce({4, "second", spec});
  runner_.StartFresh({.job = "second", .epoch = 4, .tag = {1, 0, 4}, .fresh = {}, .spec = spec});
  View view;
  view.epoch = 4;
  view.job = "second";
  view.members = {{.incarnation = Incarnation{1}, .data_address = listener_->address()}};
  runner_.ConnectMesh(view);
  EXPECT_TRUE(core_.AwaitConnected(4)) << absl::StrJoin(core_.failures(), "; ");
}

TEST_F(JobRunnerTest, AJobWhoseDataIsMissingFails) {
  JobSpec spec = SmallJob(files_, directory_.path());
  spec.data.train_images = directory_.Path("absent");
  runner_.Quiesce({1, "job", std::make_shared<const JobSpec>(spec)});
  EXPECT_FALSE(core_.AwaitQuiesced(1));
  ASSERT_EQ(core_.failures().size(), 1u);
  EXPECT_NE(core_.failures().front().find(spec.data.train_images), std::string::npos);
}

TEST_F(JobRunnerTest, AJobWhoseCheckpointsCannotBeWrittenFailsBeforeItTrains) {
  JobSpec spec = SmallJob(files_, directory_.path());
  spec.checkpoints.directory = directory_.Path("file");
  ASSERT_TRUE(WriteFileDurably(files_, spec.checkpoints.directory, "").ok());
  runner_.Quiesce({1, "job", std::make_shared<const JobSpec>(spec)});
  EXPECT_FALSE(core_.AwaitQuiesced(1));
  ASSERT_EQ(core_.failures().size(), 1u);
  EXPECT_TRUE(absl::StartsWith(core_.failures().front(), "checkpoints.directory: "));
}

// Whose checkpoints would otherwise be kept in place of this run's own.
TEST_F(JobRunnerTest, ARunFromTheBeginningRefusesTheCheckpointsOfAnother) {
  JobSpec spec = SmallJob(files_, directory_.path());
  spec.checkpoints.directory = directory_.Path("checkpoints");
  const auto start = [this](const JobId& job, const std::shared_ptr<const JobSpec>& shared) {
    runner_.Quiesce({1, job, shared});
    EXPECT_TRUE(core_.AwaitQuiesced(1)) << absl::StrJoin(core_.failures(), "; ");
    runner_.StartFresh({.job = job, .epoch = 1, .tag = {1, 0, 1}, .fresh = {}, .spec = shared});
  };
  start("first", std::make_shared<const JobSpec>(spec));
  runner_.KeepState({.tag = {1, 0, 1}, .sealed = true, .rank = 0});
  ASSERT_TRUE(WaitUntil([&] {
    const auto names = files_.ListDirectory(spec.checkpoints.directory);
    return names.ok() && *names == std::vector<std::string>{"owner.json", "step-00000000"};
  }));
  start("second", std::make_shared<const JobSpec>(spec));
  ASSERT_TRUE(WaitUntil([&] { return !core_.failures().empty(); }));
  EXPECT_TRUE(absl::StrContains(core_.failures().front(), "step-00000000 is of an earlier run"))
      << core_.failures().front();
}

// The directory belongs to the job that began last; making ready to begin, or joining, is not that.
TEST_F(JobRunnerTest, AJobTakesItsCheckpointDirectoryWhenItBegins) {
  JobSpec spec = SmallJob(files_, directory_.path());
  spec.checkpoints.directory = directory_.Path("checkpoints");
  const auto shared = std::make_shared<const JobSpec>(spec);
  const auto is_owner = [&](const JobId& job) {
    const auto text = ReadFile(files_, spec.checkpoints.directory + "/owner.json", 1 << 10);
    return text.ok() && absl::StrContains(*text, absl::StrCat("\"", job, "\"")) &&
           absl::StrContains(*text, "\"fleet-1\"");
  };
  runner_.SetIdentity(Incarnation{1}, "fleet-1");
  runner_.Quiesce({1, "first", shared});
  runner_.StartFresh({.job = "first", .epoch = 1, .tag = {1, 0, 1}, .fresh = {}, .spec = shared});
  EXPECT_TRUE(WaitUntil([&] { return is_owner("first"); }));
  runner_.Quiesce({2, "second", shared});
  ASSERT_TRUE(core_.AwaitQuiesced(2));
  EXPECT_TRUE(is_owner("first"));
  runner_.StartFresh({.job = "second", .epoch = 2, .tag = {1, 0, 2}, .fresh = {}, .spec = shared});
  EXPECT_TRUE(WaitUntil([&] { return is_owner("second"); }));
  EXPECT_TRUE(core_.failures().empty());
}

TEST_F(JobRunnerTest, AModelLargerThanTheMachineIsRefusedBeforeItsMemoryIsTouched) {
  JobSpec spec = SmallJob(files_, directory_.path());
  spec.model = MlpSpec{.hidden = {1 << 20, 1 << 20}};  // 2^40 weights: 16 TiB
  spec.communication.bucket_bytes = 1 << 30;
  runner_.Quiesce({1, "job", std::make_shared<const JobSpec>(spec)});
  EXPECT_FALSE(core_.AwaitQuiesced(1));
  ASSERT_EQ(core_.failures().size(), 1u);
  EXPECT_TRUE(absl::StrContains(core_.failures().front(), "iB are available"))
      << core_.failures().front();
}

TEST_F(JobRunnerTest, AJobThatDoesNotFitIntoMemoryFailsAndTheWorkerGoesOn) {
  const auto spec = std::make_shared<const JobSpec>(SmallJob(files_, directory_.path()));
  core_.Exhaust();
  runner_.Quiesce({1, "large", spec});
  runner_.Quiesce({2, "large", spec});  // nothing that the failure left half done is used
  absl::Notification dropped;
  runner_.Drop(absl::OkStatus(), [&] { dropped.Notify(); });
  ASSERT_TRUE(dropped.WaitForNotificationWithTimeout(kTestPatience));
  ASSERT_EQ(core_.failures().size(), 1u);
  EXPECT_TRUE(absl::StrContains(core_.failures().front(), "memory is too small for the job of"));
  core_.Forgive();
  runner_.Quiesce({3, "small", spec});
  EXPECT_TRUE(core_.AwaitQuiesced(3)) << absl::StrJoin(core_.failures(), "; ");
}

}  // namespace
}  // namespace muster
