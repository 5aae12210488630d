#include "worker/checkpoint/checkpoint_diff.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/base/temporary_directory.h"
#include "tests/worker/checkpoint/checkpoint_fixture.h"
#include "worker/checkpoint/checkpoint_writer.h"

namespace muster {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Layout LayoutOf(std::vector<TensorSpec> tensors) {
  auto layout = Layout::Create(std::move(tensors), 64);
  MUSTER_CHECK(layout.ok()) << layout.status();
  return *std::move(layout);
}

class CheckpointDiffTest : public ::testing::Test {
 protected:
  // Where element `element` of a tensor lies in the flat space.
  size_t At(const std::string& tensor, int64_t element) {
    for (const Tensor& each : layout_.tensors()) {
      if (each.spec.name == tensor) return static_cast<size_t>(each.offset + element);
    }
    ADD_FAILURE() << tensor;
    return 0;
  }

  using Change = std::function<void(std::vector<float>* parameters, std::vector<float>* momentum)>;

  // A checkpoint of step 7, after `change`; returns its path.
  std::string Write(const std::string& name, const Layout& layout, const Change& change = {},
                    int64_t max_file_bytes = 1 << 20) {
    const OwnedState base(layout, 7);
    std::vector<float> parameters(base.state().parameters.begin(), base.state().parameters.end());
    std::vector<float> momentum(base.state().slots[0].values.begin(),
                                base.state().slots[0].values.end());
    if (change) change(&parameters, &momentum);
    TrainingState state = base.state();
    state.parameters = parameters;
    state.slots = {{"momentum", momentum}};
    CheckpointWriter writer(
        files_,
        {.root = directory_.Path(name), .incarnation = {7}, .max_file_bytes = max_file_bytes});
    const auto prepared = writer.Prepare(state);
    MUSTER_CHECK(prepared.ok()) << prepared.status();
    const auto committed = writer.Commit(*prepared);
    MUSTER_CHECK(committed.ok()) << committed.status();
    return committed->path;
  }

  CheckpointDifference Compare(const std::string& first, const std::string& second) {
    auto difference = CompareCheckpoints(files_, first, second);
    EXPECT_TRUE(difference.ok()) << difference.status();
    return difference.ok() ? *std::move(difference) : CheckpointDifference();
  }

  const Layout layout_ = MakeLayout();
  TemporaryDirectory directory_;
  PosixFileSystem files_;
};

TEST_F(CheckpointDiffTest, TheSameStateInOtherFilesIsEqual) {
  const std::string whole = Write("whole", layout_);
  const std::string parts = Write("parts", layout_, {}, /*max_file_bytes=*/100);
  ASSERT_GT(std::distance(std::filesystem::directory_iterator(parts), {}),
            std::distance(std::filesystem::directory_iterator(whole), {}));
  const CheckpointDifference difference = Compare(whole, parts);
  EXPECT_TRUE(difference.equal());
  EXPECT_EQ(difference.tensors, 8);
  EXPECT_EQ(difference.elements, 2 * (5 * 30 + 5 + 3 * 5 + 3));
  EXPECT_THAT(DifferenceLines(difference),
              ElementsAre(HasSubstr("are equal bit for bit: 8 tensors, 346 elements")));
  const json read = json::parse(DifferenceJson(difference));
  EXPECT_EQ(read["equal"], true);
  EXPECT_THAT(read["differences"], IsEmpty());
}

TEST_F(CheckpointDiffTest, NamesTheFirstElementThatDiffersWithBothValues) {
  const std::string first = Write("first", layout_, [&](auto* parameters, auto*) {
    (*parameters)[At("fc1.weight", 64)] = 1.0f;
    (*parameters)[At("fc2.bias", 2)] = 0.0f;
  });
  const std::string second = Write("second", layout_, [&](auto* parameters, auto* momentum) {
    (*parameters)[At("fc1.weight", 64)] = std::nextafter(1.0f, 2.0f);
    (*parameters)[At("fc1.weight", 70)] += 2;
    (*parameters)[At("fc2.bias", 2)] = -0.0f;
    (*momentum)[At("fc1.bias", 0)] += 1;
  });
  const CheckpointDifference difference = Compare(first, second);
  ASSERT_THAT(difference.differences, SizeIs(3));
  const TensorDifference& weight = difference.differences[0];
  EXPECT_EQ(weight.name, "fc1.weight");
  EXPECT_EQ(weight.kind, CheckpointFileKind::kParameters);
  EXPECT_EQ(weight.first, 64);
  EXPECT_THAT(weight.index, ElementsAre(2, 4));
  EXPECT_THAT(weight.bits, ElementsAre(0x3f800000, 0x3f800001));
  EXPECT_EQ(weight.differing, 2);
  EXPECT_EQ(weight.elements, 150);
  EXPECT_EQ(weight.largest, 2);
  // Zeros of either sign are equal numbers and other bits.
  EXPECT_EQ(difference.differences[1].name, "fc2.bias");
  EXPECT_THAT(difference.differences[1].bits, ElementsAre(0, 0x80000000));
  EXPECT_EQ(difference.differences[1].largest, 0);
  EXPECT_EQ(difference.differences[2].name, "fc1.bias.momentum");
  EXPECT_EQ(difference.differences[2].kind, CheckpointFileKind::kOptimizer);

  EXPECT_THAT(
      DifferenceLines(difference),
      ElementsAre(AllOf(HasSubstr("(step 7)"), HasSubstr("3 of 8 tensors differ")),
                  "fc1.weight: f32 (5, 30): 2 of 150 elements, by 2 at most; first at (2, 4) "
                  "(element 64): 0x3f800000 (1) and 0x3f800001 (1.00000012)",
                  HasSubstr("0x00000000 (0) and 0x80000000 (-0)"),
                  HasSubstr("optimizer's fc1.bias.momentum: f32 (5): 1 of 5")));
  const json read = json::parse(DifferenceJson(difference));
  EXPECT_EQ(read["equal"], false);
  EXPECT_EQ(read["differences"][0]["tensor"], "fc1.weight");
  EXPECT_EQ(read["differences"][0]["what"], "values");
  EXPECT_EQ(read["differences"][0]["bits"], json({"0x3f800000", "0x3f800001"}));
  EXPECT_EQ(read["differences"][0]["values"][0], 1.0);
  EXPECT_EQ(read["differences"][2]["of"], "optimizer");
}

TEST_F(CheckpointDiffTest, NotANumberEqualsItsOwnBitsOnly) {
  const auto with = [&](float value) {
    return [this, value](std::vector<float>* parameters, std::vector<float>*) {
      (*parameters)[At("fc1.bias", 1)] = value;
    };
  };
  const std::string first = Write("first", layout_, with(NAN));
  EXPECT_TRUE(Compare(first, Write("second", layout_, with(NAN))).equal());
  const CheckpointDifference difference = Compare(first, Write("third", layout_, with(1)));
  ASSERT_THAT(difference.differences, SizeIs(1));
  EXPECT_TRUE(std::isnan(difference.differences[0].largest));
  const json read = json::parse(DifferenceJson(difference));
  EXPECT_EQ(read["differences"][0]["values"][0], nullptr);
  EXPECT_EQ(read["differences"][0]["largest"], nullptr);
}

TEST_F(CheckpointDiffTest, TellsOtherShapesAndMissingTensors) {
  const Layout other = LayoutOf({{.name = "fc1.weight", .shape = {30, 5}, .block = 0},
                                 {.name = "fc1.bias", .shape = {5}, .block = 0},
                                 {.name = "fc3.bias", .shape = {4}, .block = 1}});
  const CheckpointDifference difference = Compare(Write("first", layout_), Write("second", other));
  EXPECT_EQ(difference.tensors, 10);
  EXPECT_THAT(
      DifferenceLines(difference),
      ElementsAre(HasSubstr("8 of 10 tensors differ"), "fc1.weight: f32 (5, 30) and f32 (30, 5)",
                  "fc2.weight: only in the first, f32 (3, 5)",
                  "fc2.bias: only in the first, f32 (3)",
                  "optimizer's fc1.weight.momentum: f32 (5, 30) and f32 (30, 5)",
                  HasSubstr("fc2.weight.momentum"), HasSubstr("fc2.bias.momentum"),
                  "fc3.bias: only in the second, f32 (4)",
                  HasSubstr("optimizer's fc3.bias.momentum: only in the second")));
  const json read = json::parse(DifferenceJson(difference));
  EXPECT_EQ(read["differences"][0]["what"], "form");
  EXPECT_EQ(read["differences"][1]["what"], "missing");
  EXPECT_EQ(read["differences"][1]["forms"][1], nullptr);
}

TEST_F(CheckpointDiffTest, DamageIsAnErrorThatNamesTheFile) {
  const std::string first = Write("first", layout_);
  const std::string second = Write("second", layout_);
  EXPECT_TRUE(absl::IsNotFound(CompareCheckpoints(files_, first, second + "0").status()));
  const std::string model = second + "/model-00001-of-00001.safetensors";
  {
    std::fstream file(model, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }
  const absl::Status damaged = CompareCheckpoints(files_, first, second).status();
  EXPECT_TRUE(absl::IsDataLoss(damaged)) << damaged;
  EXPECT_THAT(std::string(damaged.message()), HasSubstr(model));
  std::filesystem::resize_file(model, std::filesystem::file_size(model) - 1);
  EXPECT_THAT(std::string(CompareCheckpoints(files_, second, first).status().message()),
              HasSubstr(model));
}

}  // namespace
}  // namespace muster
