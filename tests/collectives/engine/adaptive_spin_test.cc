#include "collectives/engine/adaptive_spin.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

constexpr absl::Duration kLongest = absl::Microseconds(64);

TEST(AdaptiveSpin, StopsWhereItNeverPaysAndTriesAgainNowAndThen) {
  AdaptiveSpin spin(kLongest);
  int spun = 0;
  for (int i = 0; i < 10 * AdaptiveSpin::kRetryAfter; ++i) {
    const absl::Duration next = spin.Next();
    if (next > absl::ZeroDuration()) ++spun;
    spin.Report(next, absl::Milliseconds(1));
  }
  EXPECT_GE(spun, 10);
  EXPECT_LE(spun, 20);
}

TEST(AdaptiveSpin, AHiccupNowAndThenDoesNotEndIt) {
  AdaptiveSpin spin(kLongest);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(spin.Next(), kLongest);
    // Waits that need most of the spin.
    spin.Report(spin.Next(), i % 4 == 0 ? absl::Milliseconds(1) : absl::Microseconds(60));
  }
}

TEST(AdaptiveSpin, ReturnsWhereItPaysAgain) {
  AdaptiveSpin spin(kLongest);
  for (int i = 0; i < 20; ++i) spin.Report(spin.Next(), absl::Milliseconds(1));
  EXPECT_EQ(spin.Next(), absl::ZeroDuration());
  for (int i = 0; i < 2 * AdaptiveSpin::kRetryAfter; ++i) {
    spin.Report(spin.Next(), absl::Microseconds(60));
  }
  EXPECT_EQ(spin.Next(), kLongest);
}

TEST(AdaptiveSpin, LearnsNothingFromWhatWasThereAlready) {
  AdaptiveSpin spin(kLongest);
  for (int i = 0; i < AdaptiveSpin::kMostCredit / 2; ++i) {
    spin.Report(spin.Next(), absl::Milliseconds(1));
  }
  for (int i = 0; i < 100; ++i) spin.Report(kLongest, absl::ZeroDuration());
  EXPECT_EQ(spin.Next(), absl::ZeroDuration());
}

TEST(AdaptiveSpin, OfZeroNeverSpins) {
  AdaptiveSpin spin(absl::ZeroDuration());
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(spin.Next(), absl::ZeroDuration());
    spin.Report(absl::ZeroDuration(), absl::ZeroDuration());
  }
}

}  // namespace
}  // namespace muster
