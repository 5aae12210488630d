#include "server/parameter_server/core/contributors.h"

#include "gmock/gmock.h"
#include "server/parameter_server/core/contributions.h"
#include "server/parameter_server/core/wait_list.h"
#include "tests/server/parameter_server/core/table_fixture.h"
#include "worker/core/batch_plan.h"

namespace muster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ContributorsTest, ANewIncarnationFencesTheOneBefore) {
  Contributors contributors("t", 2);
  EXPECT_TRUE(contributors.Attach(Contributor(1, 1), kNow, kLease).value());
  EXPECT_FALSE(contributors.Attach(Contributor(1, 1), kNow, kLease).value()) << "renews";
  EXPECT_TRUE(contributors.Check(Contributor(1, 1), kNow).ok());
  EXPECT_TRUE(contributors.Attach(Contributor(1, 2), kNow, kLease).value());
  const absl::Status fenced = contributors.Check(Contributor(1, 1), kNow);
  EXPECT_EQ(fenced.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(fenced.message()), HasSubstr("table \"t\": expected incarnation"));
  EXPECT_EQ(contributors.Attach(Contributor(1, 1), kNow, kLease).status().code(),
            absl::StatusCode::kFailedPrecondition)
      << "what is fenced does not take the place of its successor";
  EXPECT_TRUE(contributors.Check(Contributor(1, 2), kNow).ok());
  EXPECT_FALSE(contributors.attached(0));
  EXPECT_EQ(contributors.attached_count(), 1);
}

TEST(ContributorsTest, RemembersABoundedNumberOfFencedIncarnations) {
  Contributors contributors("t", 1);
  const uint64_t count = Contributors::kFencedRemembered + 2;
  for (uint64_t start = 1; start <= count; ++start) {
    ASSERT_TRUE(contributors.Attach(Contributor(0, start), kNow, kLease).ok());
  }
  EXPECT_FALSE(contributors.Attach(Contributor(0, count - 1), kNow, kLease).ok());
  EXPECT_TRUE(contributors.Attach(Contributor(0, 1), kNow, kLease).ok()) << "forgotten";
}

TEST(ContributorsTest, ALeaseLapsesWithoutWordAndDoesNotFence) {
  Contributors contributors("t", 2);
  EXPECT_EQ(contributors.NextExpiry(), absl::InfiniteFuture());
  ASSERT_TRUE(contributors.Attach(Contributor(0), kNow, kLease).ok());
  ASSERT_TRUE(contributors.Attach(Contributor(1), kNow, 2 * kLease).ok());
  EXPECT_EQ(contributors.NextExpiry(), kNow + kLease);
  ASSERT_TRUE(contributors.Check(Contributor(0), kNow + kLease / 2).ok());
  EXPECT_THAT(contributors.Expire(kNow + kLease), IsEmpty()) << "renewed by the check";
  EXPECT_THAT(contributors.Expire(kNow + 2 * kLease), ElementsAre(0, 1));
  EXPECT_FALSE(contributors.Check(Contributor(0), kNow + 2 * kLease).ok());
  EXPECT_TRUE(contributors.Attach(Contributor(0), kNow + 2 * kLease, kLease).value());
}

TEST(ContributorsTest, LeavesOfItsOwnWillOrIsRemoved) {
  Contributors contributors("t", 2);
  ASSERT_TRUE(contributors.Attach(Contributor(0), kNow, kLease).ok());
  contributors.Detach(Contributor(0, 7));
  EXPECT_TRUE(contributors.attached(0)) << "another incarnation's word";
  contributors.Detach(Contributor(0));
  EXPECT_FALSE(contributors.attached(0));
  ASSERT_TRUE(contributors.Attach(Contributor(0), kNow, kLease).ok());
  ASSERT_TRUE(contributors.Remove(0).ok());
  EXPECT_FALSE(contributors.Attach(Contributor(0), kNow, kLease).ok());
  EXPECT_EQ(contributors.Remove(2).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(contributors.Attach(Contributor(2), kNow, kLease).status().message(),
            "table \"t\": expected contributor 0 to 1, got 2");
  EXPECT_FALSE(contributors.Attach({.index = 0}, kNow, kLease).ok()) << "no incarnation";
  EXPECT_FALSE(contributors.Attach(Contributor(0, 9), kNow, absl::ZeroDuration()).ok());
}

TEST(ContributionsTest, CutsAStepAsWorkersDo) {
  for (int32_t n = 1; n <= 12; ++n) {
    for (int32_t m = 1; m <= 30; ++m) {
      const Contributions contributions(n, m);
      const BatchPlan plan{.micro_batches_per_step = m};
      for (int32_t c = 0; c < n; ++c) {
        const MicroBatchShare share = contributions.ShareOf(c);
        const MicroBatchRange expected = plan.MicroBatchesOf(c, n);
        ASSERT_EQ(share.first, expected.first);
        ASSERT_EQ(share.last, expected.last);
        for (int32_t i = share.first; i < share.last; ++i) {
          ASSERT_EQ(contributions.ContributorOf(i), c) << n << " contributors, " << m;
        }
      }
    }
  }
}

TEST(WaitListTest, GivesBackWhatIsReadyInTheOrderItCame) {
  WaitList waits;
  waits.Park(7, {.what = Wait::For::kVersion, .value = 3}, 0);
  waits.Park(2, {.what = Wait::For::kVersion, .value = 3}, 0);
  waits.Park(5, {.what = Wait::For::kVersion, .value = 4}, 0);
  waits.Park(1, {.what = Wait::For::kProgress}, 10);
  waits.Park(9, {.what = Wait::For::kSlowest, .value = 3}, 0);
  waits.Remove(9);
  waits.Remove(100);
  const auto at = [](int64_t value) {
    return [value](const Wait& wait) { return wait.value <= value; };
  };
  const auto all = [](ContributorId) { return true; };
  EXPECT_THAT(waits.TakeReady(10, at(2), all), IsEmpty());
  EXPECT_THAT(waits.TakeReady(11, at(3), all), ElementsAre(7, 2, 1));
  EXPECT_EQ(waits.size(), 1u);
  EXPECT_THAT(waits.TakeAll(), ElementsAre(5));
  EXPECT_EQ(waits.size(), 0u);
}

TEST(WaitListTest, GivesBackCallsOfThoseWhoAreAttachedNoLonger) {
  WaitList waits;
  const auto wait = [](Wait::For what, std::optional<ContributorId> from) {
    return Wait{.what = what, .value = 3, .from = from};
  };
  waits.Park(1, wait(Wait::For::kVersion, Contributor(0)), 0);
  waits.Park(2, wait(Wait::For::kVersion, Contributor(1)), 0);
  waits.Park(3, wait(Wait::For::kVersion, std::nullopt), 0);
  waits.Park(4, wait(Wait::For::kProgress, Contributor(0)), 0);
  waits.Park(5, wait(Wait::For::kProgress, Contributor(1)), 0);
  const auto has_come = [](const Wait&) { return false; };
  EXPECT_THAT(waits.TakeReady(0, has_come, [](ContributorId id) { return id.index == 1; }),
              ElementsAre(1, 4));
  EXPECT_EQ(waits.size(), 3u);
}

}  // namespace
}  // namespace muster
