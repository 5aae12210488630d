#include "worker/compression/residuals.h"

#include <vector>

#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/compression/gradient_codec.h"

namespace muster {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr GradientCompression kTopK = {.kind = GradientCompression::Kind::kTopK,
                                       .top_k_fraction = 0.02};

// Whatever is dropped in a step comes in a later one: what was sent and what is carried make up the
// gradients. Of whole numbers, whose sums f32 holds exactly, to the last bit.
TEST(ResidualsTest, NothingIsLostOverManySteps) {
  constexpr size_t kElements = 700;
  const GradientCodec codec(kTopK);
  Residuals residuals;
  residuals.Equip(kElements);
  std::vector<double> gradients(kElements, 0);
  std::vector<double> sent(kElements, 0);
  size_t sent_elements = 0;
  for (uint64_t step = 1; step <= 200; ++step) {
    const RandomStream random(5, "residuals", step);
    std::vector<float> gradient(kElements);
    for (size_t i = 0; i < kElements; ++i) {
      gradient[i] = static_cast<float>(random.Below(i, 2001)) - 1000;
      gradients[i] += gradient[i];
    }
    const absl::Span<float> contribution = residuals.Contribution({0, kElements}, gradient);
    std::vector<std::byte> bytes(static_cast<size_t>(codec.BytesOf(kElements)));
    codec.Encode(contribution, absl::MakeSpan(bytes));
    residuals.Commit();
    std::vector<float> decoded(kElements);
    ASSERT_TRUE(codec.Add(bytes, kElements, 0, /*starts=*/true, absl::MakeSpan(decoded)).ok());
    for (size_t i = 0; i < kElements; ++i) {
      sent[i] += decoded[i];
      sent_elements += decoded[i] != 0;
      ASSERT_EQ(sent[i] + residuals.carried()[i], gradients[i]) << "step " << step;
    }
  }
  EXPECT_LE(sent_elements, 200u * 14);
  // And none starves: with one in fifty sent, 200 steps are four rounds.
  EXPECT_LT(std::count(sent.begin(), sent.end(), 0.0), 70);
}

TEST(ResidualsTest, AStepThatIsNotAppliedLeavesNoTrace) {
  Residuals residuals;
  residuals.Equip(3);
  residuals.Contribution({0, 3}, {1, 2, 3});
  EXPECT_THAT(residuals.carried(), Each(0));
  residuals.Contribution({0, 2}, {10, 20});  // again, by blocks
  residuals.Contribution({2, 1}, {30});
  residuals.Commit();
  EXPECT_THAT(residuals.carried(), ElementsAre(10, 20, 30));
  EXPECT_THAT(residuals.Contribution({1, 2}, {1, 1}), ElementsAre(21, 31));
  EXPECT_THAT(residuals.carried(), ElementsAre(10, 20, 30));
}

TEST(ResidualsTest, StaysWhenEquippedAgainAndTakesThoseOfOthers) {
  Residuals residuals;
  EXPECT_TRUE(residuals.empty());
  residuals.Equip(2);
  residuals.Contribution({0, 2}, {1, 2});
  residuals.Commit();
  residuals.Equip(2);
  residuals.Take({0.5, -2});
  EXPECT_THAT(residuals.carried(), ElementsAre(1.5, 0));
  residuals.Clear();
  EXPECT_THAT(residuals.carried(), ElementsAre(0, 0));
  residuals.Equip(0);
  EXPECT_TRUE(residuals.empty());
}

}  // namespace
}  // namespace muster
