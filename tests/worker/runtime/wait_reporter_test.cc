#include "worker/runtime/wait_reporter.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class WaitReporterTest : public ::testing::Test {
 protected:
  WaitReporterTest()
      : logger_({.process = "w", .write = [this](LogLevel, absl::string_view line) {
                   lines_.emplace_back(line.data(), line.size());
                 }}) {
    for (int i = 0; i < 3; ++i) {
      view_.members.emplace_back();
      view_.members.back().name = "worker-" + std::to_string(i);
    }
  }

  static OperationWait Wait(int ms, bool over = false) {
    return {.what = "all-reduce #5 (f32)",
            .label = "bucket 3",
            .step = 17,
            .waits_for = {2},
            .waited = absl::Milliseconds(ms),
            .over = over};
  }
  std::optional<CollectiveWait> Take(WaitReporter& reporter, const OperationWait& wait, int at_ms) {
    return reporter.Take(view_, wait, absl::UnixEpoch() + absl::Milliseconds(at_ms));
  }

  View view_;
  std::vector<std::string> lines_;
  Logger logger_;
};

TEST_F(WaitReporterTest, OneLineWhenItIsLateAndOneWhenItGoesOn) {
  WaitReporter reporter(absl::Milliseconds(300), nullptr, logger_);
  std::optional<CollectiveWait> wait = Take(reporter, Wait(100), 100);
  ASSERT_TRUE(wait.has_value());
  EXPECT_FALSE(wait->late);
  EXPECT_THAT(lines_, IsEmpty());
  for (const int ms : {300, 400, 500}) {
    wait = Take(reporter, Wait(ms), ms);
    ASSERT_TRUE(wait.has_value());
    EXPECT_TRUE(wait->late);
    EXPECT_EQ(wait->waited_ms, ms);
  }
  EXPECT_EQ(wait->waits_for, std::vector<Rank>{2});
  EXPECT_EQ(wait->operation, "all-reduce #5 (f32)");
  ASSERT_THAT(lines_, SizeIs(1));
  EXPECT_THAT(lines_[0],
              AllOf(HasSubstr("collective_late"), HasSubstr("all-reduce #5"), HasSubstr("bucket 3"),
                    HasSubstr("of step 17"), HasSubstr("worker-2 (rank 2)")));
  EXPECT_EQ(Take(reporter, Wait(620, /*over=*/true), 620), std::nullopt);
  ASSERT_THAT(lines_, SizeIs(2));
  EXPECT_THAT(lines_[1], AllOf(HasSubstr("collective_resumed"), HasSubstr("after 0.6 s")));
}

TEST_F(WaitReporterTest, LinesAreFewHoweverManyAreLate) {
  WaitReporter reporter(absl::Milliseconds(100), nullptr, logger_);
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(Take(reporter, Wait(100), 200 * i)->late);
    Take(reporter, Wait(150, /*over=*/true), 200 * i + 50);
  }
  EXPECT_THAT(lines_, SizeIs(2));  // the first one, and its end
  Take(reporter, Wait(100), 10'000);
  ASSERT_THAT(lines_, SizeIs(3));
  EXPECT_THAT(lines_[2], HasSubstr("so had 49 more"));
}

TEST_F(WaitReporterTest, AShortWaitIsReportedAndNotLogged) {
  WaitReporter reporter(absl::Seconds(1), nullptr, logger_);
  EXPECT_FALSE(Take(reporter, Wait(500), 500)->late);
  EXPECT_EQ(Take(reporter, Wait(600, /*over=*/true), 600), std::nullopt);
  OperationWait local = Wait(5'000);
  local.waits_for.clear();
  EXPECT_EQ(Take(reporter, local, 6'000), std::nullopt);
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(WaitReporterTest, TheLimitFollowsTheSteps) {
  WaitReporter reporter(absl::ZeroDuration(), nullptr, logger_);
  EXPECT_EQ(reporter.limit(), absl::Seconds(5));  // nothing is known yet
  reporter.SetMedianStep(absl::Milliseconds(5), 9);
  EXPECT_EQ(reporter.limit(), absl::Seconds(5));
  reporter.SetMedianStep(absl::Milliseconds(5), 10);
  EXPECT_EQ(reporter.limit(), absl::Seconds(1));
  reporter.SetMedianStep(absl::Milliseconds(700), 10);
  EXPECT_EQ(reporter.limit(), absl::Milliseconds(3'500));
  WaitReporter given(absl::Milliseconds(200), nullptr, logger_);
  given.SetMedianStep(absl::Seconds(3), 100);
  EXPECT_EQ(given.limit(), absl::Milliseconds(200));
}

}  // namespace
}  // namespace muster
