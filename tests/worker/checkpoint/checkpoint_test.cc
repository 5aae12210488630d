#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/base/temporary_directory.h"
#include "tests/worker/checkpoint/checkpoint_fixture.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/checkpoint_writer.h"
#include "worker/checkpoint/safetensors.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointWriter Writer(int keep_last = 0, int64_t max_file_bytes = 300) {
    return CheckpointWriter(files_, {.root = root_,
                                     .incarnation = {7},
                                     .max_file_bytes = max_file_bytes,
                                     .keep_last = keep_last});
  }

  // Writes and publishes; returns the path.
  std::string Write(Step step, uint64_t branch = 0, int keep_last = 0) {
    const OwnedState state(layout_, step, branch);
    CheckpointWriter writer = Writer(keep_last);
    const auto prepared = writer.Prepare(state.state());
    EXPECT_TRUE(prepared.ok()) << prepared.status();
    const auto committed = writer.Commit(*prepared);
    EXPECT_TRUE(committed.ok()) << committed.status();
    EXPECT_THAT(committed->warnings, IsEmpty());
    return committed->path;
  }

  absl::StatusOr<FoundCheckpoint> Find(std::optional<uint64_t> job = std::nullopt) {
    return FindNewestCheckpoint(files_, root_, layout_, job);
  }

  const Layout layout_ = MakeLayout();
  TemporaryDirectory directory_;
  PosixFileSystem files_;
  const std::string root_ = directory_.Path("checkpoints");
};

TEST_F(CheckpointTest, WhatIsWrittenReadsBack) {
  const std::string path = Write(100);
  EXPECT_EQ(path, root_ + "/step-00000100");
  const auto found = Find(0x0123456789abcdef);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->warnings, IsEmpty());
  EXPECT_EQ(found->checkpoint.path, path);
  const OwnedState expected(layout_, 100);
  EXPECT_EQ(found->checkpoint.manifest.progress, expected.state().progress);
  EXPECT_EQ(found->checkpoint.manifest.layout_fingerprint, layout_.fingerprint());
  std::vector<float> parameters(layout_.padded_count(), NAN), m(parameters), v(parameters);
  ASSERT_TRUE(LoadParameters(files_, found->checkpoint, layout_, &parameters).ok());
  // The slots in another order than they were written.
  ASSERT_TRUE(
      LoadOptimizer(files_, found->checkpoint, layout_, {{"adam_v", &v}, {"adam_m", &m}}).ok());
  EXPECT_EQ(parameters, expected.state().parameters);
  EXPECT_EQ(m, expected.state().slots[0].values);
  EXPECT_EQ(v, expected.state().slots[1].values);
  EXPECT_EQ(found->checkpoint.manifest.ParametersSha256(), ParametersSha256(layout_, parameters));
}

TEST_F(CheckpointTest, TheDirectoryIsAHuggingFaceCheckpoint) {
  const std::string path = Write(1);
  // fc1.weight has 600 bytes, so it has a file of its own beyond the limit of 300; the rest has 92.
  EXPECT_THAT(files_.ListDirectory(path).value(),
              AllOf(::testing::Contains("model-00001-of-00002.safetensors"),
                    ::testing::Contains("model-00002-of-00002.safetensors"),
                    ::testing::Contains("optimizer-00001-of-00003.safetensors")));
  const auto text = ReadFile(files_, path + "/model.safetensors.index.json", 1 << 20);
  ASSERT_TRUE(text.ok()) << text.status();
  const auto index = nlohmann::json::parse(*text);
  EXPECT_EQ(index["metadata"]["total_size"], 4 * (150 + 5 + 15 + 3));
  EXPECT_EQ(index["weight_map"].size(), 4u);
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    const auto reader = SafetensorsReader::Open(files_, JoinPath(path, file.get<std::string>()));
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ(reader->tensors().count(tensor), 1u);
    EXPECT_EQ(reader->metadata().at("format"), "pt");
  }
}

TEST_F(CheckpointTest, PrepareIsDurableButInvisibleUntilCommit) {
  const OwnedState state(layout_, 100);
  CheckpointWriter writer = Writer();
  const auto prepared = writer.Prepare(state.state());
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(Find().status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(files_.Exists(prepared->path).value());
  ASSERT_TRUE(writer.Commit(*prepared).ok());
  EXPECT_FALSE(files_.Exists(prepared->path).value());
  // The checksum that was approved is that of the manifest that was written.
  EXPECT_EQ(Sha256Hex(ReadFile(files_, prepared->final_path + "/manifest.json", 1 << 20).value()),
            prepared->checksum);
  // Said again, for instance because the first answer was lost.
  EXPECT_TRUE(writer.Commit(*prepared).ok());
  EXPECT_TRUE(Find().ok());
}

TEST_F(CheckpointTest, EqualStatesHaveEqualChecksumsAndOthersDoNot) {
  const OwnedState state(layout_, 100);
  OwnedState other(layout_, 100);
  other.state().progress.epoch = 4;
  CheckpointWriter writer = Writer();
  const std::string checksum = writer.Prepare(state.state()).value().checksum;
  EXPECT_EQ(writer.Prepare(state.state()).value().checksum, checksum);
  EXPECT_NE(writer.Prepare(other.state()).value().checksum, checksum);
}

TEST_F(CheckpointTest, DiscardLeavesNothing) {
  const OwnedState state(layout_, 100);
  CheckpointWriter writer = Writer();
  const auto prepared = writer.Prepare(state.state());
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  ASSERT_TRUE(writer.Discard(*prepared).ok());
  EXPECT_THAT(files_.ListDirectory(root_).value(), IsEmpty());
  EXPECT_EQ(writer.Commit(*prepared).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CheckpointTest, ARootIsCheckedBeforeItIsNeeded) {
  const std::string root = JoinPath(directory_.path(), "a/b");
  ASSERT_TRUE(CheckRoot(files_, root, Incarnation{1}).ok());
  EXPECT_THAT(files_.ListDirectory(root).value(), ::testing::IsEmpty());
  ASSERT_TRUE(CheckRoot(files_, root, Incarnation{1}).ok());

  const std::string file = JoinPath(root, "file");
  ASSERT_TRUE(WriteFileDurably(files_, file, "").ok());
  const absl::Status status = CheckRoot(files_, file, Incarnation{1});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(file));
}

TEST_F(CheckpointTest, AnotherIncarnationsLeftoversAreRemoved) {
  const OwnedState state(layout_, 100), later(layout_, 200);
  CheckpointWriter dead = Writer();
  const auto left = dead.Prepare(state.state());
  ASSERT_TRUE(left.ok()) << left.status();
  CheckpointWriter writer(files_, {.root = root_, .incarnation = {8}});
  const auto prepared = writer.Prepare(later.state());
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_THAT(files_.ListDirectory(root_).value(), SizeIs(1));
  // If the other was only frozen, its commit fails and harms nothing.
  EXPECT_EQ(dead.Commit(*left).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(writer.Commit(*prepared).ok());
  EXPECT_EQ(Find().value().checkpoint.manifest.progress.step, 200);
}

TEST_F(CheckpointTest, ACorruptFileIsNamedAndTheOneBeforeIsUsed) {
  Write(100);
  const std::string path = Write(200);
  const std::vector<std::string> names = files_.ListDirectory(path).value();
  ASSERT_THAT(names, SizeIs(7));
  for (const std::string& name : names) {
    const std::string file = path + "/" + name;
    const std::string good = ReadFile(files_, file, 1 << 20).value();
    std::vector<std::optional<std::string>> damages = {std::nullopt, "", good.substr(0, 20),
                                                       good.substr(0, good.size() - 2), good + "x"};
    for (const size_t at : {size_t{0}, size_t{9}, good.size() / 2, good.size() - 3}) {
      std::string flipped = good;
      flipped[at] = static_cast<char>(flipped[at] ^ 0x01);
      damages.push_back(flipped);
    }
    for (const auto& damage : damages) {
      ASSERT_TRUE(files_.RemoveAll(file).ok());
      if (damage.has_value()) {
        ASSERT_TRUE(WriteFileDurably(files_, file, *damage).ok());
      }
      const auto found = Find();
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(found->checkpoint.manifest.progress.step, 100) << name;
      ASSERT_THAT(found->warnings, SizeIs(1));
      EXPECT_THAT(found->warnings[0], AllOf(HasSubstr(path), HasSubstr(name)));
    }
    ASSERT_TRUE(WriteFileDurably(files_, file, good).ok());
  }
  EXPECT_EQ(Find().value().checkpoint.manifest.progress.step, 200);
}

TEST_F(CheckpointTest, WithNothingIntactTheErrorNamesWhatWasFound) {
  EXPECT_THAT(std::string(Find().status().message()), HasSubstr(root_));
  const std::string path = Write(100);
  ASSERT_TRUE(files_.RemoveAll(path + "/manifest.json").ok());
  const absl::Status status = Find().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path + "/manifest.json"));
}

TEST_F(CheckpointTest, AHigherBranchIsNewerThanAHigherStep) {
  Write(150, /*branch=*/0);
  Write(120, /*branch=*/1);
  EXPECT_EQ(Find().value().checkpoint.manifest.progress.step, 120);
  std::vector<std::string> warnings;
  const auto listed = ListCheckpoints(files_, root_, &warnings);
  ASSERT_TRUE(listed.ok()) << listed.status();
  ASSERT_THAT(*listed, SizeIs(2));
  EXPECT_EQ((*listed)[0].manifest.progress.branch, 1u);
  EXPECT_THAT(warnings, IsEmpty());
}

TEST_F(CheckpointTest, AnotherBranchReplacesTheSameStep) {
  Write(100, /*branch=*/0);
  Write(100, /*branch=*/1);
  EXPECT_EQ(Find().value().checkpoint.manifest.progress.branch, 1u);
  EXPECT_THAT(files_.ListDirectory(root_).value(), ElementsAre("step-00000100"));
}

TEST_F(CheckpointTest, ARenamedDirectoryIsNotTakenForAnotherStep) {
  Write(100);
  ASSERT_TRUE(files_.Rename(root_ + "/step-00000100", root_ + "/step-00000300").ok());
  const auto found = Find();
  EXPECT_EQ(found.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(found.status().message()), HasSubstr("its manifest is of step 100"));
}

TEST_F(CheckpointTest, OnlyTheNewestAreKept) {
  for (const Step step : {10, 20, 30, 40}) Write(step, 0, /*keep_last=*/2);
  EXPECT_THAT(files_.ListDirectory(root_).value(), ElementsAre("step-00000030", "step-00000040"));
}

TEST_F(CheckpointTest, ATornCheckpointDoesNotCountAsKept) {
  Write(10);
  const std::string torn = Write(20);
  ASSERT_TRUE(WriteFileDurably(files_, torn + "/model-00001-of-00002.safetensors", "x").ok());
  Write(30, 0, /*keep_last=*/2);
  EXPECT_THAT(files_.ListDirectory(root_).value(),
              ElementsAre("step-00000010", "step-00000020", "step-00000030"));
}

TEST_F(CheckpointTest, WritersOfTheSameStatePublishItOnceAndRemoveNothing) {
  Write(50);
  const OwnedState state(layout_, 100);
  CheckpointWriter first(files_, {.root = root_, .incarnation = {7}, .keep_last = 1});
  CheckpointWriter second(files_, {.root = root_, .incarnation = {8}, .keep_last = 1});
  const auto prepared = first.Prepare(state.state(), Leftovers::kKeep);
  const auto beside = second.Prepare(state.state(), Leftovers::kKeep);
  ASSERT_TRUE(prepared.ok() && beside.ok()) << prepared.status() << beside.status();
  const auto committed = first.CommitBesideOthers(*prepared);
  ASSERT_TRUE(committed.ok()) << committed.status();
  const auto theirs = second.CommitBesideOthers(*beside);
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  EXPECT_EQ(theirs->path, committed->path);
  EXPECT_THAT(files_.ListDirectory(root_).value(), ElementsAre("step-00000050", "step-00000100"));
  EXPECT_EQ(Find()->checkpoint.manifest.progress.step, 100);
}

TEST_F(CheckpointTest, AWriterBesideOthersReplacesNoOtherState) {
  Write(100, /*branch=*/2);
  const OwnedState state(layout_, 100, /*branch=*/1);
  CheckpointWriter writer = Writer();
  const auto prepared = writer.Prepare(state.state(), Leftovers::kKeep);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_TRUE(absl::IsAlreadyExists(writer.CommitBesideOthers(*prepared).status()));
  const auto aside = writer.SetAside(*prepared);
  ASSERT_TRUE(aside.ok()) << aside.status();
  EXPECT_EQ(OpenCheckpoint(files_, *aside)->manifest.progress.branch, 1u);
  EXPECT_EQ(Find()->checkpoint.manifest.progress.branch, 2u);
}

TEST_F(CheckpointTest, AWriterTidiesNothingOfOneThatIsAloneAndAtWork) {
  const OwnedState state(layout_, 100);
  const auto alone = Writer().Prepare(state.state(), Leftovers::kKeep);
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_GT(BytesBeingKept(files_, root_, 100), alone->bytes);
  EXPECT_EQ(BytesBeingKept(files_, root_, 99), 0);
  CheckpointWriter other(files_, {.root = root_, .incarnation = {8}});
  const OwnedState earlier(layout_, 50), later(layout_, 150);
  ASSERT_TRUE(other.Commit(*other.Prepare(earlier.state())).ok());
  ASSERT_TRUE(other.Prepare(earlier.state()).ok());
  EXPECT_TRUE(files_.Exists(alone->path).value());
  // What is older than a complete checkpoint is of no use any more.
  ASSERT_TRUE(other.Commit(*other.Prepare(later.state())).ok());
  ASSERT_TRUE(other.Prepare(earlier.state()).ok());
  EXPECT_FALSE(files_.Exists(alone->path).value());
}

TEST_F(CheckpointTest, OneThatWasSetAsideStaysAndIsNamedButNotTaken) {
  const OwnedState state(layout_, 100);
  CheckpointWriter writer = Writer();
  const auto prepared = writer.Prepare(state.state(), Leftovers::kKeep);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  const auto aside = writer.SetAside(*prepared);
  ASSERT_TRUE(aside.ok()) << aside.status();
  const auto none = Find();
  EXPECT_TRUE(absl::IsNotFound(none.status())) << none.status();
  EXPECT_THAT(none.status().message(),
              AllOf(HasSubstr(*aside), HasSubstr("rename it to step-00000100")));
  // Another incarnation tidies up and keeps the newest.
  CheckpointWriter next(files_, {.root = root_, .incarnation = {9}, .keep_last = 1});
  const OwnedState other(layout_, 90);
  const auto ninety = next.Prepare(other.state());
  ASSERT_TRUE(ninety.ok() && next.Commit(*ninety).ok());
  ASSERT_THAT(Find()->warnings, SizeIs(1));
  EXPECT_THAT(Find()->warnings[0], HasSubstr(*aside));
  // Of no interest any more.
  Write(100, /*branch=*/0);
  EXPECT_THAT(Find()->warnings, IsEmpty());
  EXPECT_TRUE(files_.Exists(*aside).value());
}

TEST_F(CheckpointTest, OtherBucketsLoadTheSameCheckpoint) {
  Write(100);
  const Layout other = MakeLayout(/*bucket_elements=*/1024);
  ASSERT_NE(other.fingerprint(), layout_.fingerprint());
  const auto found = FindNewestCheckpoint(files_, root_, other, std::nullopt);
  ASSERT_TRUE(found.ok()) << found.status();
  std::vector<float> parameters(other.padded_count(), NAN);
  ASSERT_TRUE(LoadParameters(files_, found->checkpoint, other, &parameters).ok());
  EXPECT_EQ(parameters, MakeValues(other, 100, 0));
  EXPECT_EQ(ParametersSha256(other, parameters), found->checkpoint.manifest.ParametersSha256());
}

// Frozen parameters are saved like any other; there is no optimizer state of theirs.
TEST_F(CheckpointTest, FrozenTensorsKeepTheirValuesAndHaveNoSlots) {
  std::vector<TensorSpec> specs;
  for (const Tensor& tensor : layout_.tensors()) specs.push_back(tensor.spec);
  specs[0].frozen = specs[3].frozen = true;
  const Layout layout = Layout::Create(specs, 64).value();
  const OwnedState state(layout, 100);
  CheckpointWriter writer = Writer();
  ASSERT_TRUE(writer.Commit(writer.Prepare(state.state()).value()).ok());
  const auto found = FindNewestCheckpoint(files_, root_, layout, std::nullopt);
  ASSERT_TRUE(found.ok()) << found.status();
  std::vector<float> parameters(layout.padded_count(), NAN), m(parameters), v(parameters);
  ASSERT_TRUE(LoadParameters(files_, found->checkpoint, layout, &parameters).ok());
  EXPECT_EQ(parameters, MakeValues(layout, 100, 0));
  ASSERT_TRUE(
      LoadOptimizer(files_, found->checkpoint, layout, {{"adam_m", &m}, {"adam_v", &v}}).ok());
  std::vector<float> expected = MakeValues(layout, 100, 1);
  for (const Tensor& tensor : layout.tensors()) {
    if (!tensor.spec.frozen) continue;
    std::fill_n(expected.begin() + tensor.offset, tensor.count, 0.0f);
  }
  EXPECT_EQ(m, expected);
  // A job that trains them misses their state rather than start it anew in silence.
  EXPECT_THAT(std::string(LoadOptimizer(files_, found->checkpoint, layout_,
                                        {{"adam_m", &m}, {"adam_v", &v}})
                              .message()),
              HasSubstr("fc1.weight.adam_m\" is missing"));
}

TEST_F(CheckpointTest, AnotherModelIsRefusedByTheNameOfTheTensor) {
  Write(100);
  const auto message = [&](std::vector<TensorSpec> tensors) {
    const auto layout = Layout::Create(std::move(tensors), 64);
    EXPECT_TRUE(layout.ok()) << layout.status();
    const auto found = FindNewestCheckpoint(files_, root_, *layout, std::nullopt);
    EXPECT_EQ(found.status().code(), absl::StatusCode::kFailedPrecondition) << found.status();
    return std::string(found.status().message());
  };
  std::vector<TensorSpec> specs;
  for (const Tensor& tensor : layout_.tensors()) specs.push_back(tensor.spec);
  auto fewer = specs;
  fewer.pop_back();
  EXPECT_THAT(message(fewer), HasSubstr("\"fc2.bias\" is not one"));
  auto more = specs;
  more.push_back({.name = "fc3.bias", .shape = {3}, .block = 1});
  EXPECT_THAT(message(more), HasSubstr("\"fc3.bias\" is missing"));
  auto other_shape = specs;
  other_shape[2].shape = {5, 3};
  EXPECT_THAT(message(other_shape),
              AllOf(HasSubstr("fc2.weight"), HasSubstr("(5, 3)"), HasSubstr("(3, 5)")));
}

TEST_F(CheckpointTest, AnotherOptimizerIsRefusedByTheNameOfTheSlot) {
  Write(100);
  const auto found = Find();
  ASSERT_TRUE(found.ok()) << found.status();
  std::vector<float> values(layout_.padded_count());
  const absl::Status extra =
      LoadOptimizer(files_, found->checkpoint, layout_, {{"adam_m", &values}});
  EXPECT_EQ(extra.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(extra.message()), HasSubstr("fc1.weight.adam_v"));
  const absl::Status missing =
      LoadOptimizer(files_, found->checkpoint, layout_,
                    {{"adam_m", &values}, {"adam_v", &values}, {"momentum", &values}});
  EXPECT_EQ(missing.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(missing.message()), HasSubstr(".momentum"));
}

TEST_F(CheckpointTest, AnotherJobIsRefused) {
  Write(100);
  const auto found = Find(5);
  EXPECT_EQ(found.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(found.status().message()),
              AllOf(HasSubstr("another job"), HasSubstr("0123456789abcdef")));
}

TEST_F(CheckpointTest, AnOptimizerWithoutSlotsHasNoFile) {
  OwnedState state(layout_, 5);
  state.state().slots.clear();
  CheckpointWriter writer = Writer();
  const auto prepared = writer.Prepare(state.state());
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  ASSERT_TRUE(writer.Commit(*prepared).ok());
  const auto found = Find();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE(LoadOptimizer(files_, found->checkpoint, layout_, {}).ok());
}

TEST_F(CheckpointTest, BadSlotNamesAndTextsAreRefusedAndLeaveNothing) {
  const auto code = [&](auto change) {
    OwnedState state(layout_, 5);
    change(state.state());
    CheckpointWriter writer = Writer();
    const auto status = writer.Prepare(state.state()).status();
    if (files_.Exists(root_).value()) {
      EXPECT_THAT(files_.ListDirectory(root_).value(), IsEmpty());
    }
    return status.code();
  };
  EXPECT_EQ(code([](TrainingState& s) { s.slots[0].name = ""; }),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](TrainingState& s) { s.slots[0].name = "a.b"; }),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](TrainingState& s) { s.slots[0].name = s.slots[1].name; }),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](TrainingState& s) { s.progress.job = "\xff\xfe"; }),
            absl::StatusCode::kInvalidArgument);
}

TEST(ParametersSha256Test, IsOverTheTensorsDigestsByName) {
  const Layout layout = MakeLayout();
  const std::vector<float> values = MakeValues(layout, 1, 0);
  std::map<std::string, std::string> lines;
  for (const Tensor& tensor : layout.tensors()) {
    lines[tensor.spec.name] = Sha256Hex(absl::string_view(
        reinterpret_cast<const char*>(values.data() + tensor.offset), 4 * tensor.count));
  }
  std::string text;
  for (const auto& [name, digest] : lines) absl::StrAppend(&text, digest, "  ", name, "\n");
  EXPECT_EQ(ParametersSha256(layout, values), Sha256Hex(text));
}

}  // namespace
}  // namespace muster
