#include "state/parameter_groups.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "state/update_rule_options.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(MatchesPatternTest, StarIsAnyTextAndQuestionMarkOneCharacter) {
  EXPECT_TRUE(MatchesPattern("fc1.weight", "fc1.weight"));
  EXPECT_FALSE(MatchesPattern("fc1", "fc1.weight"));
  EXPECT_FALSE(MatchesPattern("weight", "fc1.weight"));
  EXPECT_TRUE(MatchesPattern("fc?.bias", "fc1.bias"));
  EXPECT_FALSE(MatchesPattern("fc?.bias", "fc12.bias"));
  EXPECT_FALSE(MatchesPattern("fc?.bias", "fc.bias"));
  EXPECT_TRUE(MatchesPattern("*", ""));
  EXPECT_TRUE(MatchesPattern("", ""));
  EXPECT_FALSE(MatchesPattern("", "a"));
  EXPECT_FALSE(MatchesPattern("?", ""));
  EXPECT_TRUE(MatchesPattern("*.bias", "a.b.bias"));
  EXPECT_TRUE(MatchesPattern("h.*.ln_?.*", "h.11.ln_2.weight"));
  EXPECT_FALSE(MatchesPattern("h.*.ln_?.*", "h.11.attn.weight"));
  EXPECT_TRUE(MatchesPattern("**a*", "bab"));
  // The first place that fits "ab" is not the right one.
  EXPECT_TRUE(MatchesPattern("*ab?c", "abxabyc"));
  EXPECT_FALSE(MatchesPattern("fc[1]", "fc1"));
}

TEST(MatchesPatternTest, ManyStarsTakeNoLongTime) {
  const std::string name(5'000, 'a');
  std::string pattern;
  for (int i = 0; i < 1'000; ++i) pattern += "a*";
  EXPECT_TRUE(MatchesPattern(pattern, name));
  EXPECT_FALSE(MatchesPattern(pattern + "b", name));
}

std::vector<TensorSpec> Tensors() {
  return {{.name = "fc1.weight", .shape = {4, 4}},
          {.name = "fc1.bias", .shape = {4}, .decay = false},
          {.name = "fc2.weight", .shape = {4, 4}, .block = 1},
          {.name = "fc2.bias", .shape = {4}, .block = 1, .decay = false}};
}

TEST(ParameterGroupsTest, FirstGroupThatMatchesHasTheTensor) {
  std::vector<TensorSpec> tensors = Tensors();
  const std::vector<ParameterGroupSpec> groups = {
      {.tensors = {"fc1.bias", "fc2.weight"}, .learning_rate_scale = 0.5},
      {.tensors = {"fc1.*"}, .frozen = true},
      {.tensors = {"*.bias"}, .weight_decay = 0.25}};
  ASSERT_TRUE(ApplyParameterGroups(groups, absl::MakeSpan(tensors)).ok());
  EXPECT_TRUE(tensors[0].frozen);
  EXPECT_FALSE(tensors[1].frozen);  // only what the first group says
  EXPECT_EQ(tensors[1].learning_rate_scale, 0.5);
  EXPECT_EQ(tensors[1].weight_decay, std::nullopt);
  EXPECT_EQ(tensors[2].learning_rate_scale, 0.5);
  EXPECT_EQ(tensors[3].weight_decay, 0.25);
  EXPECT_EQ(tensors[3].learning_rate_scale, 1);
}

TEST(ParameterGroupsTest, NoGroupsChangeNothing) {
  std::vector<TensorSpec> tensors = Tensors();
  ASSERT_TRUE(ApplyParameterGroups({}, absl::MakeSpan(tensors)).ok());
  EXPECT_EQ(Layout::Create(tensors, 64).value().fingerprint(),
            Layout::Create(Tensors(), 64).value().fingerprint());
}

TEST(ParameterGroupsTest, ErrorsNameThePattern) {
  const auto error = [](const std::vector<ParameterGroupSpec>& groups) {
    std::vector<TensorSpec> tensors = Tensors();
    const absl::Status status = ApplyParameterGroups(groups, absl::MakeSpan(tensors));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(error({{.tensors = {"fc1.*"}}, {.tensors = {"*.bias", "fc3.*"}}}),
              AllOf(HasSubstr("training.optimizer.groups[1].tensors[1]: \"fc3.*\" matches no"),
                    HasSubstr("fc1.weight, fc1.bias, fc2.weight, fc2.bias")));
  EXPECT_THAT(error({{.tensors = {"fc*"}}, {.tensors = {"*.bias"}}}),
              HasSubstr("training.optimizer.groups[1]: has no tensor"));
  EXPECT_THAT(error({{.tensors = {"*"}, .frozen = true}}), HasSubstr("all tensors"));
}

TEST(DescribeTest, TellsEverySettingApart) {
  OptimizerSpec plain{.rule = AdamWSpec{}};
  std::vector<OptimizerSpec> specs(12, plain);
  specs[1].rule = LambSpec{};
  specs[2].rule = LambSpec{.always_adapt = true};
  specs[3].rule = LionSpec{};
  specs[4].rule = AdagradSpec{};
  specs[5].rule = AdagradSpec{.initial_accumulator = 0.1};
  specs[6].groups = {{.tensors = {"a b"}}};
  specs[7].groups = {{.tensors = {"a", "b"}}};
  specs[8].groups = {{.tensors = {"a"}}, {.tensors = {"b"}}};
  specs[9].groups = {{.tensors = {"a b"}, .frozen = true}};
  specs[10].groups = {{.tensors = {"a b"}, .weight_decay = 0}};
  specs[11].groups = {{.tensors = {"a b"}, .learning_rate_scale = 2}};
  std::vector<std::string> texts;
  for (const OptimizerSpec& spec : specs) texts.push_back(Describe(spec));
  std::sort(texts.begin(), texts.end());
  EXPECT_EQ(std::adjacent_find(texts.begin(), texts.end()), texts.end());
}

}  // namespace
}  // namespace muster
