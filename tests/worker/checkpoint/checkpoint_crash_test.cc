// Fails at the N-th operation of writing three checkpoints, N rising until none fails, and looks at
// what is left after each kind of crash.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/temporary_directory.h"
#include "tests/worker/checkpoint/checkpoint_fixture.h"
#include "tests/worker/checkpoint/crashing_file_system.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/checkpoint_writer.h"

namespace muster {
namespace {

using Mode = CrashingFileSystem::Mode;
using Loss = CrashingFileSystem::Loss;

constexpr Step kSteps[] = {100, 200, 300};

struct Progress {
  Step committed = 0;   // the last step whose Commit returned success
  Step committing = 0;  // the last step whose Commit was called
};

// Writes the checkpoints, as a worker does: an error gives up this checkpoint, not the job. The
// first step is there already, from an abandoned branch, so that it is replaced.
Progress WriteAll(FileSystem& files, const std::string& root, const Layout& layout) {
  CheckpointWriter writer(
      files, {.root = root, .incarnation = {7}, .max_file_bytes = 300, .keep_last = 2});
  Progress progress;
  for (const Step step : kSteps) {
    const OwnedState state(layout, step, /*branch=*/1);
    const auto prepared = writer.Prepare(state.state());
    if (!prepared.ok()) continue;
    progress.committing = step;
    const auto committed = writer.Commit(*prepared);
    if (committed.ok()) {
      progress.committed = step;
    } else {
      writer.Discard(*prepared).IgnoreError();
    }
  }
  return progress;
}

// Why what is on disk breaks the promise, or nothing.
std::optional<std::string> Violation(const std::string& root, const Layout& layout,
                                     const Progress& progress) {
  PosixFileSystem files;
  const auto found = FindNewestCheckpoint(files, root, layout, std::nullopt);
  if (!found.ok()) return absl::StrCat("nothing loads: ", found.status().ToString());
  if (!found->warnings.empty()) return absl::StrCat("torn: ", found->warnings[0]);
  const TrainingProgress& loaded = found->checkpoint.manifest.progress;
  const bool newest =
      loaded.branch == 1 ? loaded.step == progress.committed || (loaded.step > progress.committed &&
                                                                 loaded.step <= progress.committing)
                         : progress.committed == 0 && loaded.step == kSteps[0];
  if (!newest) {
    return absl::StrCat("branch ", loaded.branch, " step ", loaded.step, " loads, but step ",
                        progress.committed, " was committed");
  }
  const OwnedState expected(layout, loaded.step, loaded.branch);
  if (loaded != expected.state().progress) return "another progress";
  std::vector<float> parameters(expected.state().parameters.size(), -1);
  std::vector<float> m(parameters), v(parameters);
  const absl::Status parameters_status =
      LoadParameters(files, found->checkpoint, layout, &parameters);
  const absl::Status optimizer_status =
      LoadOptimizer(files, found->checkpoint, layout, {{"adam_m", &m}, {"adam_v", &v}});
  if (!parameters_status.ok()) return parameters_status.ToString();
  if (!optimizer_status.ok()) return optimizer_status.ToString();
  if (parameters != expected.state().parameters || m != expected.state().slots[0].values ||
      v != expected.state().slots[1].values) {
    return "other values";
  }
  return std::nullopt;
}

// A root that holds the first step, of branch 0.
void WriteEarlierCheckpoint(const std::string& root, const Layout& layout) {
  PosixFileSystem files;
  CheckpointWriter writer(files, {.root = root, .incarnation = {6}});
  const OwnedState state(layout, kSteps[0], /*branch=*/0);
  const auto prepared = writer.Prepare(state.state());
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  ASSERT_TRUE(writer.Commit(*prepared).ok());
}

// A new worker goes on after the crash: it tidies up without harm to what is complete, writes a
// checkpoint, and leaves no litter.
void ExpectRecovers(const std::string& root, const Layout& layout, const Progress& progress) {
  PosixFileSystem files;
  CheckpointWriter writer(files, {.root = root, .incarnation = {8}, .keep_last = 1});
  const OwnedState state(layout, 400, /*branch=*/2);
  const auto prepared = writer.Prepare(state.state());
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  ASSERT_EQ(Violation(root, layout, progress), std::nullopt);
  const auto committed = writer.Commit(*prepared);
  ASSERT_TRUE(committed.ok()) << committed.status();
  EXPECT_THAT(committed->warnings, ::testing::IsEmpty());
  EXPECT_THAT(files.ListDirectory(root).value(), ::testing::ElementsAre("step-00000400"));
}

class CheckpointCrashTest : public ::testing::TestWithParam<std::tuple<Mode, Loss>> {};

TEST_P(CheckpointCrashTest, WhereverItFailsTheNewestCompleteCheckpointLoads) {
  const auto [mode, loss] = GetParam();
  const Layout layout = MakeLayout();
  int64_t fail_at = 1;
  for (bool failed = true; failed; ++fail_at) {
    SCOPED_TRACE(absl::StrCat("failure at operation ", fail_at));
    const TemporaryDirectory directory;
    const std::string root = directory.Path("checkpoints");
    WriteEarlierCheckpoint(root, layout);
    CrashingFileSystem files({.fail_at = fail_at, .mode = mode});
    const Progress progress = WriteAll(files, root, layout);
    files.Lose(loss);
    failed = files.failed();
    ASSERT_EQ(Violation(root, layout, progress), std::nullopt);
    if (!failed) {
      ASSERT_EQ(progress.committed, 300);
    }
    ASSERT_NO_FATAL_FAILURE(ExpectRecovers(root, layout, progress));
  }
  EXPECT_GT(fail_at, 60) << "fewer operations than the checkpoints need: nothing was injected";
}

INSTANTIATE_TEST_SUITE_P(AllCrashes, CheckpointCrashTest,
                         ::testing::Values(std::tuple(Mode::kDie, Loss::kNothing),
                                           std::tuple(Mode::kDie, Loss::kData),
                                           std::tuple(Mode::kDie, Loss::kDataAndNames),
                                           std::tuple(Mode::kFailOnce, Loss::kNothing),
                                           std::tuple(Mode::kFailOnce, Loss::kDataAndNames)));

// A root that does not exist yet is created so that a committed checkpoint in it survives.
TEST(CheckpointNewRootTest, SurvivesPowerLossRightAfterTheFirstCommit) {
  const Layout layout = MakeLayout();
  const TemporaryDirectory directory;
  const std::string root = directory.Path("runs/1/checkpoints");
  CrashingFileSystem files({});
  const Progress progress = WriteAll(files, root, layout);
  ASSERT_EQ(progress.committed, 300);
  files.Lose(Loss::kDataAndNames);
  EXPECT_EQ(Violation(root, layout, progress), std::nullopt);
}

// What Prepare reported as durable, the coordinator may approve after the machine came back.
TEST(CheckpointPrepareTest, APreparedCheckpointSurvivesPowerLoss) {
  const Layout layout = MakeLayout();
  const TemporaryDirectory directory;
  const CheckpointWriterOptions options{.root = directory.Path("runs/1"), .incarnation = {7}};
  CrashingFileSystem files({});
  const OwnedState state(layout, 100, /*branch=*/1);
  const auto prepared = CheckpointWriter(files, options).Prepare(state.state());
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  files.Lose(Loss::kDataAndNames);
  PosixFileSystem disk;
  const auto committed = CheckpointWriter(disk, options).Commit(*prepared);
  ASSERT_TRUE(committed.ok()) << committed.status();
  EXPECT_EQ(Violation(options.root, layout, {.committed = 100, .committing = 100}), std::nullopt);
}

// The harness sees it when durability is missing.
TEST(CheckpointCrashMutantTest, SyncsThatDoNothingAreNoticed) {
  const Layout layout = MakeLayout();
  for (const Loss loss : {Loss::kData, Loss::kDataAndNames}) {
    const TemporaryDirectory directory;
    const std::string root = directory.Path("checkpoints");
    WriteEarlierCheckpoint(root, layout);
    CrashingFileSystem files({.ignore_sync = true});
    const Progress progress = WriteAll(files, root, layout);
    ASSERT_EQ(progress.committed, 300);
    files.Lose(loss);
    EXPECT_NE(Violation(root, layout, progress), std::nullopt);
  }
}

}  // namespace
}  // namespace muster
