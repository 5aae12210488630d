#include "state/initialize.h"

#include <cmath>

#include "gtest/gtest.h"

namespace muster {
namespace {

std::vector<float> Initialized(const Layout& layout, uint64_t seed) {
  std::vector<float> flat(layout.padded_count(), -7.0f);
  InitializeParameters(layout, seed, absl::MakeSpan(flat));
  return flat;
}

const TensorSpec kNormal{
    .name = "normal", .shape = {50'000}, .initializer = Initializer::kNormal, .scale = 0.5f};
const TensorSpec kUniform{
    .name = "uniform", .shape = {50'000}, .initializer = Initializer::kUniform, .scale = 0.25f};
const TensorSpec kOnes{.name = "one", .shape = {3}, .initializer = Initializer::kOne};
const TensorSpec kZeros{.name = "zero", .shape = {3}, .initializer = Initializer::kZero};

TEST(InitializeTest, DrawsWhatTheSpecSaysAndZeroesPadding) {
  const Layout layout = Layout::Create({kNormal, kUniform, kOnes, kZeros}, 4096).value();
  const std::vector<float> flat = Initialized(layout, 1);
  std::vector<bool> is_parameter(flat.size(), false);
  for (const Tensor& tensor : layout.tensors()) {
    double sum = 0, squares = 0, largest = 0;
    for (int64_t i = tensor.offset; i < tensor.offset + tensor.count; ++i) {
      is_parameter[i] = true;
      sum += flat[i];
      squares += double{flat[i]} * flat[i];
      largest = std::max(largest, std::abs(double{flat[i]}));
    }
    const double mean = sum / tensor.count;
    const double square = squares / tensor.count;
    if (tensor.spec.name == "normal") {
      EXPECT_NEAR(mean, 0, 0.01);
      EXPECT_NEAR(square, 0.25, 0.01);
      EXPECT_GT(largest, 1.5);
    } else if (tensor.spec.name == "uniform") {
      EXPECT_NEAR(mean, 0, 0.005);
      EXPECT_NEAR(square, 0.25 * 0.25 / 3, 0.001);
      EXPECT_LE(largest, 0.25);
      EXPECT_GT(largest, 0.249);
    } else {
      EXPECT_EQ(mean, tensor.spec.name == "one" ? 1 : 0);
      EXPECT_EQ(square, mean);
    }
  }
  for (size_t i = 0; i < flat.size(); ++i) {
    if (!is_parameter[i]) {
      EXPECT_EQ(flat[i], 0.0f) << i;
    }
  }
}

TEST(InitializeTest, DependsOnNameAndSeedAndNotOnTheLayout) {
  const Layout alone = Layout::Create({kUniform}, 64).value();
  const Layout together = Layout::Create({kOnes, kNormal, kUniform}, 8192).value();
  const std::vector<float> a = Initialized(alone, 9);
  const std::vector<float> b = Initialized(together, 9);
  const int64_t offset = together.Find("uniform")->offset;
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 50'000, b.begin() + offset));
  EXPECT_NE(a, Initialized(alone, 10));
  TensorSpec renamed = kUniform;
  renamed.name = "other";
  EXPECT_NE(a, Initialized(Layout::Create({renamed}, 64).value(), 9));
}

}  // namespace
}  // namespace muster
