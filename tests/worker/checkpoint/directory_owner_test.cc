#include "worker/checkpoint/directory_owner.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/temporary_directory.h"
#include "tests/worker/checkpoint/checkpoint_fixture.h"
#include "tests/worker/checkpoint/crashing_file_system.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/checkpoint_writer.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const DirectoryOwner kFirst{.fleet = "f1", .job = "j1"};
const DirectoryOwner kSecond{.fleet = "f2", .job = "j2"};

class DirectoryOwnerTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::string> Take(const DirectoryOwner& owner, FileSystem& files) {
    return TakeDirectory(files, root_, owner, Incarnation{7}, absl::FromUnixSeconds(1'700'000'000));
  }
  absl::StatusOr<std::string> Take(const DirectoryOwner& owner) { return Take(owner, files_); }
  absl::Status Check(const DirectoryOwner& owner) { return CheckOwner(files_, root_, owner); }
  void Put(absl::string_view text) {
    ASSERT_TRUE(WriteFileDurably(files_, JoinPath(root_, "owner.json"), text).ok());
  }
  std::string FileText() {
    return ReadFile(files_, JoinPath(root_, "owner.json"), 1 << 20).value_or("none");
  }
  std::vector<std::string> Names() { return files_.ListDirectory(root_).value(); }
  CheckpointWriter WriterOf(const DirectoryOwner& owner, uint64_t incarnation) {
    return CheckpointWriter(
        files_, {.root = root_, .incarnation = {incarnation}, .owner = owner, .keep_last = 1});
  }

  PosixFileSystem files_;
  TemporaryDirectory directory_;
  const std::string root_ = directory_.path();
  const Layout layout_ = MakeLayout();
};

TEST_F(DirectoryOwnerTest, BelongsToNobodyAndThenToWhoeverBeganLast) {
  EXPECT_TRUE(Check(kFirst).ok());
  EXPECT_TRUE(CheckOwner(files_, directory_.Path("absent"), kFirst).ok());
  EXPECT_EQ(Take(kFirst).value(), "");
  EXPECT_TRUE(Check(kFirst).ok());
  EXPECT_EQ(Take(kSecond).value(), "job j1 of fleet f1, whose it was since 2023-11-14T22:13:20Z");
  EXPECT_TRUE(Check(kSecond).ok());
  const absl::Status first = Check(kFirst);
  EXPECT_TRUE(absl::IsFailedPrecondition(first));
  EXPECT_THAT(std::string(first.message()),
              AllOf(HasSubstr(root_),
                    HasSubstr("taken over at 2023-11-14T22:13:20Z by job j2 of "
                              "fleet f2, so job j1 of fleet f1 publishes"),
                    HasSubstr("submit one of them again with another")));
  // Job ids are a fleet's own.
  EXPECT_TRUE(absl::IsFailedPrecondition(Check({.fleet = "f1", .job = "j2"})));
  EXPECT_TRUE(absl::IsFailedPrecondition(Check({.fleet = "f2", .job = "j1"})));
  EXPECT_TRUE(Take(kFirst).ok());
  EXPECT_TRUE(Check(kFirst).ok());
  EXPECT_THAT(Names(), ElementsAre("owner.json"));
}

TEST_F(DirectoryOwnerTest, TheOwnerWritesNothingAgain) {
  ASSERT_TRUE(Take(kFirst).ok());
  CrashingFileSystem unwritable({.fail_at = 1});
  EXPECT_EQ(Take(kFirst, unwritable).value(), "");
  EXPECT_FALSE(unwritable.failed());
  EXPECT_FALSE(Take(kSecond, unwritable).ok());
}

TEST_F(DirectoryOwnerTest, AFileThatIsNotUnderstoodIsLeftAloneUntilAJobBegins) {
  struct Case {
    std::string text;
    absl::StatusCode code;
    const char* says;
  };
  for (const Case& bad : {
           Case{"", absl::StatusCode::kDataLoss, "not valid JSON"},
           Case{R"({"format": 1, "fleet": "f1"})", absl::StatusCode::kDataLoss, "\"job\""},
           Case{R"({"format": 1, "fleet": 3, "job": "", "since": ""})", absl::StatusCode::kDataLoss,
                "\"fleet\""},
           Case{R"({"format": 2, "owners": []})", absl::StatusCode::kFailedPrecondition,
                "format 2, this program reads format 1"},
           Case{std::string(100'000, ' '), absl::StatusCode::kDataLoss, "owner.json"},
       }) {
    SCOPED_TRACE(bad.text.substr(0, 50));
    Put(bad.text);
    const absl::Status status = Check(kFirst);
    EXPECT_EQ(status.code(), bad.code);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(bad.says), HasSubstr("belongs to is not known"),
                      HasSubstr(absl::StrCat("remove ", root_, "/owner.json"))));
    CheckpointWriter writer = WriterOf(kFirst, 7);
    const OwnedState state(layout_, 100);
    EXPECT_EQ(writer.Prepare(state.state()).status().code(), bad.code);
    EXPECT_EQ(FileText(), bad.text);
    EXPECT_THAT(Take(kFirst).value(), HasSubstr("an unknown job: "));
    EXPECT_TRUE(Check(kFirst).ok());
  }
}

TEST_F(DirectoryOwnerTest, WhereverTakingItFailsItIsTheOldOwnersOrTheNewOnes) {
  using Loss = CrashingFileSystem::Loss;
  for (const Loss loss : {Loss::kNothing, Loss::kData}) {
    int64_t fail_at = 1;
    for (bool failed = true; failed; ++fail_at) {
      SCOPED_TRACE(absl::StrCat("failure at operation ", fail_at));
      ASSERT_TRUE(Take(kFirst).ok());
      CrashingFileSystem crashing({.fail_at = fail_at});
      const bool taken = Take(kSecond, crashing).ok();
      crashing.Lose(loss);
      failed = crashing.failed();
      EXPECT_TRUE(failed || taken);
      const bool is_second = Check(kSecond).ok();
      EXPECT_TRUE(is_second || Check(kFirst).ok()) << FileText();
      EXPECT_TRUE(is_second || !taken);
      // What a dead one left is tidied by the next checkpoint.
      CheckpointWriter writer = WriterOf(is_second ? kSecond : kFirst, 8);
      const OwnedState state(layout_, 100);
      const auto prepared = writer.Prepare(state.state());
      ASSERT_TRUE(prepared.ok()) << prepared.status();
      ASSERT_TRUE(writer.Discard(*prepared).ok());
      EXPECT_THAT(Names(), ElementsAre("owner.json"));
    }
    EXPECT_GT(fail_at, 5) << "nothing was injected";
  }
}

// Another writer tidies up between the two steps of taking the directory.
TEST_F(DirectoryOwnerTest, ATemporaryThatIsTidiedAwayIsWrittenAgain) {
  class Tidying final : public FileSystem {
   public:
    explicit Tidying(int times) : times_(times) {}
    absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
      return files_.Create(path);
    }
    absl::StatusOr<std::unique_ptr<WritableFile>> OpenToAppend(const std::string& path) override {
      return files_.OpenToAppend(path);
    }
    absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
      return files_.Open(path);
    }
    absl::StatusOr<bool> Exists(const std::string& path) override { return files_.Exists(path); }
    absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) override {
      return files_.ListDirectory(path);
    }
    absl::Status CreateDirectories(const std::string& path) override {
      return files_.CreateDirectories(path);
    }
    absl::Status Rename(const std::string& from, const std::string& to) override {
      if (times_-- > 0) MUSTER_RETURN_IF_ERROR(files_.RemoveAll(from));
      return files_.Rename(from, to);
    }
    absl::Status SyncDirectory(const std::string& path) override {
      return files_.SyncDirectory(path);
    }
    absl::Status RemoveAll(const std::string& path) override { return files_.RemoveAll(path); }

   private:
    PosixFileSystem files_;
    int times_;
  };
  Tidying twice(2), always(100);
  EXPECT_TRUE(Take(kFirst, twice).ok());
  EXPECT_TRUE(Check(kFirst).ok());
  EXPECT_TRUE(absl::IsNotFound(Take(kSecond, always).status()));
  EXPECT_TRUE(Check(kFirst).ok());
}

TEST_F(DirectoryOwnerTest, AWriterFromWhomItWasTakenPublishesAndRemovesNothing) {
  ASSERT_TRUE(Take(kFirst).ok());
  CheckpointWriter first = WriterOf(kFirst, 7), second = WriterOf(kSecond, 8);
  const OwnedState early(layout_, 100), late(layout_, 200), other(layout_, 150);
  const auto ready = first.Prepare(early.state());
  const auto kept = first.Prepare(late.state(), Leftovers::kKeep);
  ASSERT_TRUE(ready.ok() && kept.ok()) << ready.status() << kept.status();
  ASSERT_TRUE(Take(kSecond).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(first.Commit(*ready).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(first.CommitBesideOthers(*kept).status()));
  ASSERT_TRUE(first.Discard(*ready).ok());
  const auto theirs = second.Prepare(other.state());
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  const std::vector<std::string> names = Names();
  EXPECT_TRUE(absl::IsFailedPrecondition(first.Prepare(early.state()).status()));
  EXPECT_EQ(Names(), names);
  ASSERT_TRUE(second.Commit(*theirs).ok());
  // Only what is set aside is in nobody's way.
  const auto aside = first.SetAside(*kept);
  ASSERT_TRUE(aside.ok()) << aside.status();
  EXPECT_EQ(OpenCheckpoint(files_, *aside)->manifest.progress.step, 200);
  const auto found = FindNewestCheckpoint(files_, root_, layout_, std::nullopt);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->checkpoint.manifest.progress.step, 150);
  EXPECT_THAT(found->warnings, ElementsAre(HasSubstr("another job had taken the directory over")));
}

TEST_F(DirectoryOwnerTest, TheFileIsNoCheckpointAndNoPartIsWrittenForAnothersDirectory) {
  ASSERT_TRUE(Take(kFirst).ok());
  EXPECT_TRUE(
      absl::IsNotFound(FindNewestCheckpoint(files_, root_, layout_, std::nullopt).status()));
  std::vector<std::string> warnings;
  EXPECT_THAT(ListCheckpoints(files_, root_, &warnings).value(), IsEmpty());
  EXPECT_THAT(warnings, IsEmpty());
  // Nobody would assemble it or tidy it away.
  const CheckpointPart second_of_two{
      .index = 1, .count = 2, .publisher = Incarnation{7}, .view = 3};
  const OwnedState part(layout_, 100, second_of_two);
  CheckpointWriter writer = WriterOf(kSecond, 9);
  EXPECT_TRUE(absl::IsFailedPrecondition(writer.Prepare(part.state()).status()));
  EXPECT_THAT(Names(), ElementsAre("owner.json"));
}

}  // namespace
}  // namespace muster
