#include "state/step_scalars.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(CosinePiTest, AgreesWithTheLibrary) {
  for (int i = 0; i <= 1000; ++i) {
    const double x = i / 1000.0;
    EXPECT_NEAR(CosinePi(x), std::cos(M_PI * x), 1e-15) << x;
  }
}

TEST(PowerByIntegerTest, AgreesWithTheLibrary) {
  EXPECT_EQ(PowerByInteger(0.9, 0), 1);
  EXPECT_EQ(PowerByInteger(0.9, 1), 0.9);
  EXPECT_EQ(PowerByInteger(2, 62), 0x1p62);
  for (const int64_t exponent : {2, 3, 10, 1000, 12345}) {
    EXPECT_NEAR(PowerByInteger(0.999, exponent) / std::pow(0.999, exponent), 1, 1e-11);
  }
}

TEST(LearningRateTest, WarmUpRisesInEqualStepsAndMeetsThePeakOnce) {
  for (const auto schedule : {LearningRateSchedule::kConstant, LearningRateSchedule::kCosine,
                              LearningRateSchedule::kLinear}) {
    const LearningRateOptions options{
        .schedule = schedule, .peak = 0.5, .warmup_steps = 4, .total_steps = 20};
    for (Step step = 1; step <= 4; ++step) {
      EXPECT_DOUBLE_EQ(LearningRate(options, step), 0.5 * step / 5);
    }
    EXPECT_DOUBLE_EQ(LearningRate(options, 5), 0.5);
    if (schedule != LearningRateSchedule::kConstant) {
      EXPECT_LT(LearningRate(options, 6), 0.5);
    }
  }
}

TEST(LearningRateTest, FollowsTheClosedForms) {
  LearningRateOptions options{.peak = 0.8, .final = 0.1, .warmup_steps = 10, .total_steps = 110};
  for (Step step = 11; step <= 120; ++step) {
    const double t = std::min(1.0, (step - 11) / 100.0);
    options.schedule = LearningRateSchedule::kConstant;
    EXPECT_DOUBLE_EQ(LearningRate(options, step), 0.8);
    options.schedule = LearningRateSchedule::kLinear;
    EXPECT_NEAR(LearningRate(options, step), 0.8 * (1 - t) + 0.1 * t, 1e-15);
    options.schedule = LearningRateSchedule::kCosine;
    EXPECT_NEAR(LearningRate(options, step), 0.1 + 0.35 * (1 + std::cos(M_PI * t)), 1e-15);
  }
}

TEST(LearningRateTest, NamesRoundTrip) {
  for (const auto schedule : {LearningRateSchedule::kConstant, LearningRateSchedule::kCosine,
                              LearningRateSchedule::kLinear}) {
    EXPECT_EQ(LearningRateScheduleFromName(Name(schedule)).value(), schedule);
  }
  EXPECT_THAT(std::string(LearningRateScheduleFromName("cosin").status().message()),
              HasSubstr("\"cosin\""));
}

TEST(LearningRateTest, ValidationNamesTheField) {
  const auto error = [](LearningRateOptions options) {
    const absl::Status status = Validate(options);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_TRUE(Validate(LearningRateOptions{}).ok());
  for (const double peak : {kNan, -0.1, 0.0, kInfinity}) {
    EXPECT_THAT(error({.peak = peak}), HasSubstr("learning_rate.peak"));
  }
  for (const double final : {kNan, -0.1, 0.2}) {
    EXPECT_THAT(error({.peak = 0.1, .final = final}), HasSubstr("learning_rate.final"));
  }
  EXPECT_THAT(error({.total_steps = 0}), HasSubstr("total_steps"));
  EXPECT_THAT(error({.warmup_steps = 5, .total_steps = 5}), HasSubstr("warmup_steps"));
  EXPECT_THAT(error({.warmup_steps = -1, .total_steps = 5}), HasSubstr("warmup_steps"));
}

TEST(GradientScaleTest, DividesByTheSamples) {
  const GradientScale result = ComputeGradientScale(64.0 * 64 * 9, 64, 0);
  EXPECT_EQ(result.scale, 1.0 / 64);
  EXPECT_EQ(result.norm, 3);
  EXPECT_FALSE(result.clipped);
}

TEST(GradientScaleTest, ClipsTheMeanAsTorchDoes) {
  // clip_grad_norm_: factor = max_norm / (norm + 1e-6), at most 1.
  const GradientScale clipped = ComputeGradientScale(64.0 * 64 * 9, 64, 2);
  EXPECT_DOUBLE_EQ(clipped.scale, 2 / (3 + 1e-6) / 64);
  EXPECT_EQ(clipped.norm, 3);
  EXPECT_TRUE(clipped.clipped);

  const GradientScale kept = ComputeGradientScale(64.0 * 64 * 9, 64, 3.1);
  EXPECT_EQ(kept.scale, 1.0 / 64);
  EXPECT_FALSE(kept.clipped);

  const GradientScale zero = ComputeGradientScale(0, 1, 1);
  EXPECT_EQ(zero.scale, 1);
  EXPECT_EQ(zero.norm, 0);
}

}  // namespace
}  // namespace muster
