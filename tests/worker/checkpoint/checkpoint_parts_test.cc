// Checkpoints that several workers write, each a part, and readers that want only ranges.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/temporary_directory.h"
#include "tests/state/random_layout.h"
#include "tests/worker/checkpoint/checkpoint_fixture.h"
#include "tests/worker/checkpoint/crashing_file_system.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/checkpoint_writer.h"
#include "worker/checkpoint/part_plan.h"
#include "worker/checkpoint/safetensors.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Of worker `index`; worker 0 publishes.
CheckpointPart PartOf(int index, int count) {
  return {.index = index, .count = count, .publisher = {70}, .view = 5};
}

class CheckpointPartsTest : public ::testing::Test {
 protected:
  CheckpointWriter Writer(int index) {
    return CheckpointWriter(files_,
                            {.root = root_, .incarnation = {70 + static_cast<uint64_t>(index)}});
  }
  absl::StatusOr<PreparedCheckpoint> Prepare(Step step, int index, int count) {
    const OwnedState state(layout_, step, PartOf(index, count));
    return Writer(index).Prepare(state.state());
  }
  // Writes all parts; what the writer of part 0 prepared.
  PreparedCheckpoint PrepareAll(Step step, int count) {
    PreparedCheckpoint first;
    // Whoever comes first makes the directory.
    for (int index = count - 1; index >= 0; --index) {
      const auto prepared = Prepare(step, index, count);
      EXPECT_TRUE(prepared.ok()) << prepared.status();
      first = *prepared;
    }
    return first;
  }
  std::string Write(Step step, int count) {
    const auto whole = Writer(0).Assemble(PrepareAll(step, count));
    EXPECT_TRUE(whole.ok()) << whole.status();
    const auto committed = Writer(0).Commit(*whole);
    EXPECT_TRUE(committed.ok()) << committed.status();
    return committed->path;
  }
  Step NewestStep() {
    const auto found = FindNewestCheckpoint(files_, root_, layout_, std::nullopt);
    return found.ok() ? found->checkpoint.manifest.progress.step : -1;
  }
  void ExpectHolds(const std::string& path, Step step) {
    const auto checkpoint = VerifyCheckpoint(files_, path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    std::vector<float> parameters, m, v;
    ASSERT_TRUE(LoadParameters(files_, *checkpoint, layout_, &parameters).ok());
    ASSERT_TRUE(LoadOptimizer(files_, *checkpoint, layout_, {{"adam_m", &m}, {"adam_v", &v}}).ok());
    EXPECT_EQ(parameters, MakeValues(layout_, step, 0));
    EXPECT_EQ(m, MakeValues(layout_, step, 1));
    EXPECT_EQ(v, MakeValues(layout_, step, 2));
  }

  const Layout layout_ = MakeLayout();
  TemporaryDirectory directory_;
  PosixFileSystem files_;
  const std::string root_ = directory_.Path("checkpoints");
};

TEST(PartPlanTest, PartsAreWholeTensorsAndAsEvenAsTheseAllow) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const Layout layout = RandomLayout(seed);
    int64_t largest = 0;
    for (const Tensor& tensor : layout.tensors()) largest = std::max(largest, tensor.count);
    for (int count : {1, 2, 3, 7, 40}) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", ", count, " parts"));
      const std::vector<Range> ranges = RangesOfParts(layout, count);
      ASSERT_EQ(static_cast<int>(ranges.size()), count);
      int64_t next = 0;
      for (const Range& range : ranges) {
        ASSERT_EQ(range.offset, next);
        next = range.end();
        // Padding that follows a block's last tensor comes on top.
        EXPECT_LE(range.count, layout.padded_count() / count + largest + Layout::kAlignment);
      }
      EXPECT_EQ(next, layout.padded_count());

      const int64_t max_file_bytes = 4000;
      int64_t tensors = 0;
      for (const PlannedFile& file : PlanFiles(layout, {"m"}, count, max_file_bytes)) {
        ASSERT_FALSE(file.tensors.empty()) << file.name;
        int64_t bytes = 0;
        for (const PlannedTensor& planned : file.tensors) {
          EXPECT_TRUE(ranges[static_cast<size_t>(file.part)].Contains(
              {planned.tensor->offset, planned.tensor->count}))
              << planned.name;
          bytes += planned.tensor->count * 4;
          ++tensors;
        }
        EXPECT_TRUE(bytes <= max_file_bytes || file.tensors.size() == 1) << file.name;
      }
      EXPECT_EQ(tensors, static_cast<int64_t>(2 * layout.tensors().size()));
    }
  }
}

TEST_F(CheckpointPartsTest, SeveralWritersMakeTheCheckpointThatOneWouldHaveMade) {
  const std::string alone = Write(50, 1);
  const std::string hash = OpenCheckpoint(files_, alone)->manifest.ParametersSha256();
  for (int count : {2, 3, 4, 9}) {  // of four tensors: some write nothing
    SCOPED_TRACE(count);
    const std::string path = Write(100 + count, count);
    ExpectHolds(path, 100 + count);
    const Manifest manifest = OpenCheckpoint(files_, path)->manifest;
    EXPECT_EQ(manifest.progress, OwnedState(layout_, 100 + count).state().progress);
    const auto parameters = MakeValues(layout_, 100 + count, 0);
    EXPECT_EQ(manifest.ParametersSha256(), ParametersSha256(layout_, parameters));
    // Nothing is there but what the manifest names, and the directory is one of Hugging Face's.
    std::vector<std::string> names = {"manifest.json"};
    for (const CheckpointFile& file : manifest.files) names.push_back(file.name);
    EXPECT_THAT(files_.ListDirectory(path).value(), ::testing::UnorderedElementsAreArray(names));
    const auto index = ReadFile(files_, path + "/model.safetensors.index.json", 1 << 20);
    for (const Tensor& tensor : layout_.tensors()) {
      EXPECT_THAT(*index, HasSubstr(absl::StrCat("\"", tensor.spec.name, "\": \"model-")));
    }
  }
  EXPECT_EQ(OpenCheckpoint(files_, alone)->manifest.ParametersSha256(), hash);
}

TEST_F(CheckpointPartsTest, APartThatIsNotThereIsNamedAndNothingIsPublished) {
  Write(100, 3);
  const auto first = Prepare(200, 0, 3);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(Prepare(200, 2, 3).ok());
  const auto whole = Writer(0).Assemble(*first);
  EXPECT_EQ(whole.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(whole.status().message()),
              AllOf(HasSubstr("part 2 of 3"), HasSubstr(first->path),
                    HasSubstr("a file system that all workers share")));
  EXPECT_EQ(NewestStep(), 100);
  // What is left is removed with the next.
  Write(300, 2);
  EXPECT_THAT(files_.ListDirectory(root_).value(), ElementsAre("step-00000100", "step-00000300"));
}

// A member may write its part of the next checkpoint before the first part's writer has begun this
// one, for which it cleans up.
TEST_F(CheckpointPartsTest, WhatAMemberHasBegunOfALaterStepStays) {
  ASSERT_TRUE(Prepare(200, 1, 2).ok());
  const auto slow = Prepare(100, 0, 2);
  ASSERT_TRUE(slow.ok()) << slow.status();
  const auto next = Prepare(200, 0, 2);
  ASSERT_TRUE(next.ok()) << next.status();
  const auto whole = Writer(0).Assemble(*next);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_FALSE(files_.Exists(slow->path).value()) << "nothing comes of it any more";
}

TEST_F(CheckpointPartsTest, PartsOfAnotherStateOrDamagedOnesAreRefused) {
  const PreparedCheckpoint first = PrepareAll(200, 2);
  const std::string record = first.path + "/part-00002-of-00002.json";
  const std::string good = ReadFile(files_, record, 1 << 20).value();
  OwnedState other(layout_, 200, PartOf(1, 2));
  other.state().progress.epoch = 9;
  ASSERT_TRUE(Writer(1).Prepare(other.state()).ok());
  EXPECT_EQ(Writer(0).Assemble(first).status().code(), absl::StatusCode::kFailedPrecondition);

  std::string torn = good;
  torn[torn.size() / 2] ^= 1;
  ASSERT_TRUE(WriteFileDurably(files_, record, torn).ok());
  absl::Status status = Writer(0).Assemble(first).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(record));

  ASSERT_TRUE(WriteFileDurably(files_, record, good).ok());
  const std::string file = first.path + "/model-00002-of-00002.safetensors";
  ASSERT_TRUE(WriteFileDurably(files_, file, "short").ok());
  status = Writer(0).Assemble(first).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(file));
}

// A writer dies at its N-th operation, N rising until it lives; with its machine, or alone.
TEST_F(CheckpointPartsTest, WhereverAWriterDiesTheCheckpointIsWholeOrTheOneBeforeIsNewest) {
  Write(100, 3);
  int torn = 0;
  Step step = 200;
  for (const auto loss :
       {CrashingFileSystem::Loss::kNothing, CrashingFileSystem::Loss::kDataAndNames}) {
    for (int64_t fail_at = 1;; ++fail_at, ++step) {
      SCOPED_TRACE(absl::StrCat("failure at operation ", fail_at));
      const auto first = Prepare(step, 0, 3);
      ASSERT_TRUE(first.ok() && Prepare(step, 1, 3).ok());
      CrashingFileSystem crashing({.fail_at = fail_at});
      const OwnedState state(layout_, step, PartOf(2, 3));
      const auto last =
          CheckpointWriter(crashing, {.root = root_, .incarnation = {72}}).Prepare(state.state());
      crashing.Lose(loss);
      const auto whole = Writer(0).Assemble(*first);
      if (last.ok()) {
        ASSERT_TRUE(whole.ok()) << whole.status();
        ExpectHolds(Writer(0).Commit(*whole).value().path, step);
        EXPECT_EQ(NewestStep(), step++);
        break;
      }
      // It had not said that its part is durable, so nobody would have asked.
      torn += whole.ok() ? 0 : 1;
      EXPECT_LT(NewestStep(), step);
    }
  }
  EXPECT_GT(torn, 10) << "nothing was injected";
}

TEST_F(CheckpointPartsTest, AnyOfThemPublishesAndOnlyOneDoes) {
  const PreparedCheckpoint first = PrepareAll(200, 2);
  const auto by_first = Writer(0).Assemble(first);
  const auto by_second = Writer(1).Assemble(first);
  ASSERT_TRUE(by_first.ok() && by_second.ok());
  EXPECT_EQ(by_first->manifest, by_second->manifest);
  const auto second = Writer(1).CommitBesideOthers(*by_second);
  ASSERT_TRUE(second.ok()) << second.status();
  const auto late = Writer(0).CommitBesideOthers(*by_first);
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_EQ(late->path, second->path);
  ExpectHolds(late->path, 200);
  EXPECT_THAT(files_.ListDirectory(root_).value(), ElementsAre("step-00000200"));
}

// Counts the bytes that are read.
class CountedFile final : public ReadableFile {
 public:
  CountedFile(std::unique_ptr<ReadableFile> file, int64_t* read)
      : file_(std::move(file)), read_(read) {}
  int64_t size() const override { return file_->size(); }
  absl::StatusOr<size_t> ReadAt(int64_t offset, absl::Span<char> out) const override {
    *read_ += static_cast<int64_t>(out.size());
    return file_->ReadAt(offset, out);
  }

 private:
  std::unique_ptr<ReadableFile> file_;
  int64_t* read_;
};

class CountingFiles final : public FileSystem {
 public:
  int64_t read = 0;
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    return files_.Create(path);
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenToAppend(const std::string& path) override {
    return files_.OpenToAppend(path);
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    auto file = files_.Open(path);
    if (!file.ok()) return file.status();
    return std::make_unique<CountedFile>(*std::move(file), &read);
  }
  absl::StatusOr<bool> Exists(const std::string& path) override { return files_.Exists(path); }
  absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) override {
    return files_.ListDirectory(path);
  }
  absl::Status CreateDirectories(const std::string& path) override {
    return files_.CreateDirectories(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return files_.Rename(from, to);
  }
  absl::Status SyncDirectory(const std::string& path) override {
    return files_.SyncDirectory(path);
  }
  absl::Status RemoveAll(const std::string& path) override { return files_.RemoveAll(path); }

 private:
  PosixFileSystem files_;
};

TEST(CheckpointRangesTest, OnlyWhatIsWantedIsReadAndDamageInItIsNamed) {
  const Layout layout =
      Layout::Create({{.name = "a", .shape = {1000, 1000}, .block = 0},  // 3.8 MiB
                      {.name = "b", .shape = {2000, 1000}, .block = 1}},
                     1 << 20)
          .value();
  const TemporaryDirectory directory;
  CountingFiles files;
  CheckpointWriter writer(files, {.root = directory.Path("c"), .incarnation = {1}});
  const OwnedState state(layout, 7);
  const auto prepared = writer.Prepare(state.state());
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  const std::string path = writer.Commit(*prepared)->path;
  const Checkpoint checkpoint = OpenCheckpoint(files, path).value();

  // A little of each tensor, and the rest of the first.
  const int64_t b = layout.tensors()[1].offset;
  const std::vector<Range> ranges = {{10, 5}, {700'000, 300'000}, {b + 1'000'000, 64}};
  const std::vector<float> expected = MakeValues(layout, 7, 0);
  std::vector<float> seen;
  const PieceSink into = Into(layout, &seen);
  int64_t taken = 0;
  const PieceSink take = [&](int64_t offset, absl::Span<const float> values) {
    taken += static_cast<int64_t>(values.size());
    into(offset, values);
  };
  files.read = 0;
  ASSERT_TRUE(LoadParameters(files, checkpoint, layout, ranges, take).ok());
  EXPECT_EQ(taken, 5 + 300'000 + 64);
  for (const Range& range : ranges) {
    for (int64_t i = range.offset; i < range.end(); ++i) ASSERT_EQ(seen[i], expected[i]) << i;
  }
  // Two pieces at each end of a range at most, of 11.4 MiB in all.
  EXPECT_LE(files.read, 5 * kCheckedBytes);

  // Damage elsewhere is of no interest.
  const std::string file = path + "/model-00001-of-00001.safetensors";
  std::string bytes = ReadFile(files, file, 100 << 20).value();
  const size_t at = bytes.size() - 100;  // the end of b
  bytes[at] ^= 4;
  ASSERT_TRUE(WriteFileDurably(files, file, bytes).ok());
  EXPECT_TRUE(LoadParameters(files, checkpoint, layout, ranges, into).ok());
  const absl::Status status =
      LoadParameters(files, checkpoint, layout, {{b + 1'900'000, 10}, {b + 1'999'990, 10}}, into);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("tensor \"b\""), HasSubstr(file), HasSubstr("CRC-32C")));
}

}  // namespace
}  // namespace muster
