#include "worker/runtime/checkpointer.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/temporary_directory.h"
#include "tests/wait_until.h"
#include "tests/worker/runtime/small_job.h"
#include "worker/checkpoint/directory_owner.h"
#include "worker/device/registry.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Observer : public CheckpointObserver {
 public:
  void OnCheckpointDurable(const CheckpointReport&) override { durable_.Notify(); }
  void OnCheckpointCommitted(const CheckpointReport&, absl::Span<const std::string>) override {}
  void OnCheckpointFailed(const StateTag&, const absl::Status& status) override {
    MutexLock lock(&mutex_);
    failure_ = status;
  }
  void OnStateKept(const StateTag&, const absl::StatusOr<std::string>& path) override {
    MutexLock lock(&mutex_);
    kept_ = path;
  }
  absl::StatusOr<std::string> AwaitKept() {
    MutexLock lock(&mutex_);
    const auto is_kept = [this]()
                             ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return kept_.has_value(); };
    if (!mutex_.AwaitWithDeadline(Condition(&is_kept), absl::Now() + kTestPatience)) {
      return absl::DeadlineExceededError("nothing was kept");
    }
    return *kept_;
  }
  bool AwaitDurable() { return durable_.WaitForNotificationWithTimeout(kTestPatience); }
  absl::Status failure() {
    MutexLock lock(&mutex_);
    return failure_;
  }

 private:
  Mutex mutex_;
  std::optional<absl::StatusOr<std::string>> kept_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  absl::Notification durable_;
};

class CheckpointerTest : public ::testing::Test {
 protected:
  CheckpointerTest() {
    JobSpec spec = SmallJob(files_, directory_.path());
    spec.checkpoints.directory = root_;
    spec.checkpoints.keep = 1;
    auto context = JobContext::Create("j", spec, files_, *device_);
    MUSTER_CHECK(context.ok()) << context.status();
    job_ = *std::move(context);
    replica_ = std::make_unique<Replica>(job_->layout(), job_->rule(), job_->learning_rate(),
                                         spec.training.clip_norm);
    replica_->Initialize(spec.training.seed, StateTag{1, 5, 2});
  }

  std::vector<std::string> NamesOnDisk() {
    auto names = files_.ListDirectory(root_);
    return names.ok() ? *names : std::vector<std::string>{};
  }

  // The directory is the other's from now on.
  void TakenByAnother() {
    ASSERT_TRUE(files_.CreateDirectories(root_).ok());
    ASSERT_TRUE(
        TakeDirectory(files_, root_, {"other fleet", "k"}, Incarnation{9}, absl::Now()).ok());
  }

  PosixFileSystem files_;
  TemporaryDirectory directory_;
  const std::string root_ = directory_.Path("checkpoints");
  // Two workers keep the same sealed state; the other finds what the first has written.
  void ExpectKeptOnce(Observer& first_observer, Observer& other_observer) {
    Checkpointer first(*job_, files_, "fleet", Incarnation{1}, first_observer);
    Checkpointer other(*job_, files_, "fleet", Incarnation{2}, other_observer);
    ASSERT_TRUE(other.Keep({replica_->Snapshot(), {}}, /*sealed=*/true, absl::Minutes(10)));
    ASSERT_TRUE(first.Keep({replica_->Snapshot(), {}}, /*sealed=*/true, absl::ZeroDuration()));
    const auto path = first_observer.AwaitKept();
    ASSERT_TRUE(path.ok()) << path.status();
    EXPECT_EQ(other_observer.AwaitKept().value(), *path);
  }

  std::unique_ptr<Device> device_ = CreateDevice("cpu", {}).value();
  std::unique_ptr<JobContext> job_;
  std::unique_ptr<Replica> replica_;
};

TEST_F(CheckpointerTest, ASealedStateIsPublishedByTheFirstAndFoundByTheOthers) {
  Observer first_observer, other_observer;
  ExpectKeptOnce(first_observer, other_observer);
  EXPECT_THAT(NamesOnDisk(), ElementsAre("step-00000005"));
}

TEST_F(CheckpointerTest, AnotherPublishesASealedStateWhenTheFirstDoesNot) {
  Observer observer;
  Checkpointer other(*job_, files_, "fleet", Incarnation{2}, observer);
  ASSERT_TRUE(other.Keep({replica_->Snapshot(), {}}, /*sealed=*/true, absl::Milliseconds(1)));
  ASSERT_TRUE(observer.AwaitKept().ok());
  EXPECT_THAT(NamesOnDisk(), ElementsAre("step-00000005"));
}

TEST_F(CheckpointerTest, WhoeverWaitsForOneThatDiedWhileWritingWritesInTheEnd) {
  const std::string half = root_ + "/.alone-step-00000005-00000000000000ff";
  ASSERT_TRUE(files_.CreateDirectories(half).ok());
  ASSERT_TRUE(WriteFileDurably(files_, half + "/model-00001-of-00001.safetensors", "half").ok());
  Observer observer;
  Checkpointer other(*job_, files_, "fleet", Incarnation{2}, observer);
  ASSERT_TRUE(other.Keep({replica_->Snapshot(), {}}, /*sealed=*/true, absl::Milliseconds(300)));
  ASSERT_TRUE(observer.AwaitKept().ok());
  EXPECT_THAT(NamesOnDisk(), ::testing::Contains("step-00000005"));
}

TEST_F(CheckpointerTest, WhoeverWaitsForOthersWritesBeforeItGoes) {
  Observer observer;
  {
    Checkpointer other(*job_, files_, "fleet", Incarnation{2}, observer);
    ASSERT_TRUE(other.Keep({replica_->Snapshot(), {}}, /*sealed=*/true, absl::Hours(1)));
  }
  ASSERT_TRUE(observer.AwaitKept().ok());
  EXPECT_THAT(NamesOnDisk(), ElementsAre("step-00000005"));
}

TEST_F(CheckpointerTest, AStateThatIsNotSealedIsSetAside) {
  Observer observer;
  Checkpointer checkpointer(*job_, files_, "fleet", Incarnation{2}, observer);
  ASSERT_TRUE(checkpointer.Keep({replica_->Snapshot(), {}}, /*sealed=*/false, absl::Hours(1)));
  ASSERT_TRUE(observer.AwaitKept().ok());
  EXPECT_THAT(NamesOnDisk(), ElementsAre(StartsWith("unsealed-step-00000005-")));
}

TEST_F(CheckpointerTest, ASealedStateIsSetAsideOnceWhereAnotherJobHasTakenOver) {
  TakenByAnother();
  Observer first_observer, other_observer;
  ExpectKeptOnce(first_observer, other_observer);
  EXPECT_THAT(NamesOnDisk(), ElementsAre("owner.json", "unsealed-step-00000005-0000000000000001"));
  EXPECT_THAT(std::string(first_observer.failure().message()),
              HasSubstr("by job k of fleet other fleet"));
}

TEST_F(CheckpointerTest, ACheckpointThatLosesItsDirectoryFailsForThatReasonAndLeavesNothing) {
  Observer observer;
  Checkpointer checkpointer(*job_, files_, "fleet", Incarnation{1}, observer);
  const StateTag tag{1, 5, 2};
  ASSERT_TRUE(checkpointer.Begin({replica_->Snapshot(), {}}));
  ASSERT_TRUE(observer.AwaitDurable());
  TakenByAnother();
  checkpointer.Commit(tag);
  const auto done = checkpointer.WaitDone(tag, absl::Now() + kTestPatience);
  EXPECT_TRUE(absl::IsFailedPrecondition(done.status())) << done.status();
  // It is told on the writer's thread, for which nobody waits.
  EXPECT_TRUE(WaitUntil([&] { return observer.failure() == done.status(); })) << observer.failure();
  EXPECT_TRUE(WaitUntil([&] { return NamesOnDisk() == std::vector<std::string>{"owner.json"}; }));
}

TEST_F(CheckpointerTest, AStateThatCannotBeWrittenIsReported) {
  ASSERT_TRUE(WriteFileDurably(files_, root_, "a file where the directory should be").ok());
  Observer observer;
  Checkpointer checkpointer(*job_, files_, "fleet", Incarnation{2}, observer);
  ASSERT_TRUE(checkpointer.Keep({replica_->Snapshot(), {}}, /*sealed=*/true, absl::ZeroDuration()));
  EXPECT_FALSE(observer.AwaitKept().ok());
}

}  // namespace
}  // namespace muster
