#include "worker/metrics/operation_log.h"

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace muster {
namespace {

TEST(OperationLogTest, EachStateHasItsFields) {
  const absl::Time start = absl::UnixEpoch() + absl::Seconds(5);
  std::vector<OperationRecord> records(3);
  records[0] = {.number = 7,
                .what = "all-reduce #8",
                .label = "bucket-\xff",
                .step = 3,
                .state = OperationState::kDone,
                .issued_at = start,
                .started_at = start + absl::Microseconds(10),
                .ended_at = start + absl::Microseconds(35)};
  records[1] = {.number = 8,
                .state = OperationState::kRunning,
                .issued_at = start,
                .started_at = start + absl::Microseconds(40)};
  records[2] = {.number = 9,
                .state = OperationState::kFailed,
                .issued_at = start,
                .ended_at = start + absl::Microseconds(50),
                .status = absl::UnavailableError("rank 1 is gone")};
  const std::string lines = OperationsAsJsonLines(records, start + absl::Microseconds(60));
  const std::vector<std::string> split = absl::StrSplit(lines, '\n');
  ASSERT_EQ(split.size(), 4u);
  EXPECT_EQ(split[3], "");
  const auto done = nlohmann::json::parse(split[0]);
  EXPECT_EQ(done["number"], 7);
  EXPECT_EQ(done["what"], "all-reduce #8");
  EXPECT_EQ(done["step"], 3);
  EXPECT_EQ(done["state"], "done");
  EXPECT_EQ(done["issued"], "1970-01-01T00:00:05+00:00");
  EXPECT_DOUBLE_EQ(done["queued_us"], 10);
  EXPECT_DOUBLE_EQ(done["running_us"], 25);
  EXPECT_FALSE(done.contains("error"));
  const auto running = nlohmann::json::parse(split[1]);
  EXPECT_EQ(running["state"], "running");
  EXPECT_DOUBLE_EQ(running["running_us"], 20);
  const auto failed = nlohmann::json::parse(split[2]);
  EXPECT_DOUBLE_EQ(failed["queued_us"], 50);
  EXPECT_FALSE(failed.contains("running_us"));
  EXPECT_NE(failed["error"].get<std::string>().find("rank 1 is gone"), std::string::npos);
}

}  // namespace
}  // namespace muster
