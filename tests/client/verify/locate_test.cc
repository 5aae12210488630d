#include "client/verify/locate.h"

#include <cstdlib>
#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/temporary_directory.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

// Reruns whose checkpoints are empty directories; those of the run differ after step `parted_`.
class LocateTest : public ::testing::Test {
 protected:
  static constexpr int64_t kSteps = 50;

  Rerun Make(const std::string& name, int64_t every, const std::string& sha256) {
    distances_.push_back(every);
    const std::string root = directory_.Path(absl::StrCat(name, "-", every));
    int64_t last = 0;
    for (int64_t step = 1; step <= kSteps; ++step) {
      // The writer is busy for a while.
      const bool due =
          step % every == 0 && step != given_up_ && (last == 0 || step - last >= busy_);
      if (!due && step != kSteps) continue;
      std::filesystem::create_directories(
          absl::StrCat(root, "/", absl::StrFormat("step-%08d", step)));
      last = step;
    }
    std::filesystem::create_directories(root + "/.tmp-step-00000003");
    return {root, sha256};
  }

  Location Locate() {
    LocateOperations operations;
    operations.reference = [&](int64_t every) -> absl::StatusOr<Rerun> {
      return Make("reference", every, "aa");
    };
    operations.run = [&](int64_t every) -> absl::StatusOr<Rerun> {
      return Make("run", every, parted_ > kSteps ? "aa" : "bb");
    };
    operations.compare =
        [&](const std::string& first,
            const std::string&) -> absl::StatusOr<std::optional<ParsedDifference>> {
      ++compared_;
      const std::vector<std::string> words = absl::StrSplit(first, "step-");
      if (std::atoll(words.back().c_str()) < parted_) return std::optional<ParsedDifference>();
      return std::make_optional(ParsedDifference{.tensor = "fc1.weight"});
    };
    return LocateDifference(files_, operations);
  }

  TemporaryDirectory directory_;
  PosixFileSystem files_;
  int64_t parted_ = 17;
  int64_t busy_ = 1;
  int64_t given_up_ = 0;
  int compared_ = 0;
  std::vector<int64_t> distances_;
};

TEST_F(LocateTest, FindsTheStepAtOnceWhereEveryStepIsSaved) {
  const Location location = Locate();
  ASSERT_TRUE(location.first.has_value()) << location.problem;
  EXPECT_EQ(location.first->step, 17);
  EXPECT_EQ(location.first->last_equal, 16);
  EXPECT_EQ(location.first->difference.tensor, "fc1.weight");
  EXPECT_THAT(location.first->paths,
              ElementsAre(EndsWith("reference-1/step-00000017"), EndsWith("run-1/step-00000017")));
  EXPECT_THAT(distances_, ElementsAre(1, 1));
  EXPECT_EQ(compared_, 17);
}

TEST_F(LocateTest, TheFirstStepHasNoneBefore) {
  parted_ = 1;
  const Location location = Locate();
  ASSERT_TRUE(location.first.has_value()) << location.problem;
  EXPECT_EQ(location.first->step, 1);
  EXPECT_EQ(location.first->last_equal, 0);
}

TEST_F(LocateTest, FurtherRerunsHalveGaps) {
  busy_ = 30;  // after steps 1, 31 and 50
  const Location location = Locate();
  ASSERT_TRUE(location.first.has_value()) << location.problem;
  EXPECT_EQ(location.first->step, 17);
  EXPECT_EQ(location.first->last_equal, 16);
  EXPECT_THAT(distances_, ElementsAre(1, 1, 16, 16, 23, 23, 19, 19, 17, 17));
}

// A checkpoint may be given up for the next one. A distance that has been tried would be of no use.
TEST_F(LocateTest, NoDistanceIsTriedTwice) {
  parted_ = 1;
  given_up_ = 1;
  const Location location = Locate();
  ASSERT_TRUE(location.first.has_value()) << location.problem;
  EXPECT_EQ(location.first->step, 2);
  EXPECT_EQ(location.first->last_equal, 0);
  EXPECT_THAT(distances_, ElementsAre(1, 1));
}

TEST_F(LocateTest, SaysWhereARerunIsEqual) {
  parted_ = kSteps + 1;
  const Location location = Locate();
  EXPECT_FALSE(location.first.has_value());
  EXPECT_THAT(location.problem, HasSubstr("a rerun with checkpoints ended with equal bits"));
}

TEST_F(LocateTest, SaysWhyARerunFailed) {
  LocateOperations operations;
  operations.reference = [](int64_t) -> absl::StatusOr<Rerun> {
    return absl::AbortedError("the disk is full");
  };
  EXPECT_THAT(LocateDifference(files_, operations).problem, HasSubstr("the disk is full"));
}

TEST(ParseDifferenceTest, ReadsWhatMusterCheckpointWrites) {
  const auto equal = ParseDifference(R"({"equal": true, "tensors": 8, "differences": []})");
  ASSERT_TRUE(equal.ok()) << equal.status();
  EXPECT_FALSE(equal->has_value());
  const auto other = ParseDifference(R"({"equal": false, "tensors": 8, "differences": [
      {"tensor": "a.exp_avg", "of": "optimizer", "what": "values", "elements": 20, "differing": 3,
       "first": 7, "index": [1, 2], "bits": ["0x3f800000", "0x7fc00000"], "values": [1.5, null]},
      {"tensor": "b", "of": "parameters", "what": "missing"}]})");
  ASSERT_TRUE(other.ok()) << other.status();
  const ParsedDifference& parsed = **other;
  EXPECT_EQ(parsed.tensor, "a.exp_avg");
  EXPECT_EQ(parsed.of, "optimizer");
  EXPECT_EQ(parsed.element, 7);
  EXPECT_THAT(parsed.index, ElementsAre(1, 2));
  EXPECT_THAT(parsed.bits, ElementsAre("0x3f800000", "0x7fc00000"));
  EXPECT_THAT(parsed.values, ElementsAre("1.5", "not finite"));
  EXPECT_EQ(parsed.differing, 3);
  EXPECT_EQ(parsed.elements, 20);
  EXPECT_EQ(parsed.differing_tensors, 2);
  EXPECT_EQ(parsed.tensors, 8);
  for (const char* bad :
       {"", "7", "{}", R"({"equal": false, "differences": []})",
        R"({"equal": false, "differences": [3]})",
        R"({"equal": false, "differences": [{"tensor": "a", "what": "values"}]})",
        R"({"equal": false, "differences": [{"tensor": "a", "what": "values", "index": [],
            "bits": [1, 2], "values": [1, 2]}]})"}) {
    EXPECT_TRUE(absl::IsInternal(ParseDifference(bad).status())) << bad;
  }
}

}  // namespace
}  // namespace muster
