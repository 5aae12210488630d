#include "worker/runtime/step_meter.h"

#include "gtest/gtest.h"

namespace muster {
namespace {

TEST(StepMeterTest, IsZeroBeforeTheFirstStep) {
  const StepMeter meter;
  EXPECT_EQ(meter.PercentileMs(50), 0);
  EXPECT_EQ(meter.wait_share(), 0);
  EXPECT_EQ(meter.samples_per_second(), 0);
}

TEST(StepMeterTest, PercentilesAndShares) {
  StepMeter meter;
  for (int i = 1; i <= 101; ++i) meter.Record(absl::Milliseconds(i), absl::Milliseconds(i) / 4, 10);
  EXPECT_NEAR(meter.PercentileMs(0), 1, 0.01);
  EXPECT_NEAR(meter.PercentileMs(50), 51, 0.51);
  EXPECT_NEAR(meter.PercentileMs(99), 100, 1);
  EXPECT_NEAR(meter.PercentileMs(100), 101, 1.01);
  EXPECT_NEAR(meter.wait_share(), 0.25, 1e-9);
}

TEST(StepMeterTest, RateSettlesOnTheSteadyValue) {
  StepMeter meter;
  for (int i = 0; i < 100; ++i) meter.Record(absl::Milliseconds(100), absl::ZeroDuration(), 50);
  EXPECT_NEAR(meter.samples_per_second(), 500, 1e-6);
}

TEST(StepMeterTest, WindowForgetsOldSteps) {
  StepMeter meter;
  for (size_t i = 0; i < StepMeter::kWindow; ++i) {
    meter.Record(absl::Seconds(1), absl::ZeroDuration(), 1);
  }
  for (size_t i = 0; i < StepMeter::kWindow; ++i) {
    meter.Record(absl::Milliseconds(1), absl::ZeroDuration(), 1);
  }
  EXPECT_NEAR(meter.PercentileMs(100), 1, 0.01);
}

}  // namespace
}  // namespace muster
