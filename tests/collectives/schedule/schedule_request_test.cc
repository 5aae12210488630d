#include "collectives/schedule/schedule_request.h"

#include "collectives/schedule/make_schedule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ChunkOfTest, CutsWithoutHolesAndLargerChunksFirst) {
  for (const int64_t total : {0, 1, 5, 16, 17, 1000}) {
    for (const int parts : {1, 2, 3, 16, 17}) {
      int64_t next = 0;
      int64_t previous = total;
      for (int i = 0; i < parts; ++i) {
        const Chunk chunk = ChunkOf(total, parts, i);
        EXPECT_EQ(chunk.offset, next);
        EXPECT_LE(chunk.count, previous);
        EXPECT_LE(ChunkOf(total, parts, 0).count - chunk.count, 1);
        next += chunk.count;
        previous = chunk.count;
      }
      EXPECT_EQ(next, total);
    }
  }
}

TEST(ChunkOfTest, HoldsForVectorsBeyondTwoToThe31) {
  const int64_t total = (int64_t{1} << 40) + 3;
  EXPECT_EQ(ChunkOf(total, 4, 3).offset + ChunkOf(total, 4, 3).count, total);
  EXPECT_EQ(ChunkOf(total, 4, 2).count, (int64_t{1} << 38) + 1);
}

void ExpectInvalid(const ScheduleRequest& request, const char* text) {
  const absl::Status status = MakeSchedule(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

TEST(ChunkCountsTest, AreEvenUnlessGiven) {
  ScheduleRequest request = {.size = 3, .count = 10};
  EXPECT_THAT(ChunkCounts(request), ElementsAre(4, 3, 3));
  request.count = 0;
  request.counts = {0, 9, 1};
  EXPECT_THAT(ChunkCounts(request), ElementsAre(0, 9, 1));
  EXPECT_EQ(VectorCount(request), 10);
  EXPECT_EQ(InputCount(request), 10);
  EXPECT_EQ(OutputCount(request), 10);
  request.collective = Collective::kReduceScatter;
  EXPECT_THAT(ChunkCounts(request), ElementsAre(0, 9, 1));
  request = {.collective = Collective::kReduce, .size = 4, .count = 9};
  EXPECT_THAT(ChunkCounts(request), ElementsAre(3, 2, 2, 2));
  request = {.collective = Collective::kAllToAll, .size = 2, .counts = {1, 2, 3, 4}};
  EXPECT_EQ(VectorCount(request), 0);
}

TEST(ChunkCountsTest, PushAndPullTakeTheVectorFromAndToWorkersAlone) {
  ScheduleRequest request = {.collective = Collective::kPush,
                             .rank = 1,
                             .size = 3,
                             .counts = {1, 2, 4},
                             .contributors = 2,
                             .order_counts = {5, 2}};
  EXPECT_THAT(ChunkCounts(request), ElementsAre(1, 2, 4));
  EXPECT_THAT(OrderCounts(request), ElementsAre(5, 2));
  EXPECT_EQ(ContributorCount(request), 2);
  EXPECT_EQ(InputCount(request), 7);
  EXPECT_EQ(OutputCount(request), 2);
  request.rank = 2;
  EXPECT_EQ(InputCount(request), 0);
  EXPECT_EQ(OutputCount(request), 4);
  request.collective = Collective::kPull;
  EXPECT_EQ(ContributorCount(request), 3);
  EXPECT_EQ(InputCount(request), 4);
  EXPECT_EQ(OutputCount(request), 0);
  request.rank = 0;
  EXPECT_EQ(InputCount(request), 1);
  EXPECT_EQ(OutputCount(request), 7);
}

TEST(ValidateRequestTest, NamesTheFieldThatIsWrong) {
  const ScheduleRequest good = {.size = 4, .count = 10};
  EXPECT_TRUE(MakeSchedule(good).ok());
  ScheduleRequest request = good;
  request.algorithm = Algorithm::kAuto;
  ExpectInvalid(request, "algorithm is auto");
  request = good;
  request.algorithm = static_cast<Algorithm>(77);
  ExpectInvalid(request, "(77)");
  request = good;
  request.collective = static_cast<Collective>(0);
  ExpectInvalid(request, "collective number 0");
  request = good;
  request.size = 0;
  ExpectInvalid(request, "size is 0");
  request.size = kMaxScheduleRanks + 1;
  ExpectInvalid(request, "size is 4097");
  request = good;
  request.rank = 4;
  ExpectInvalid(request, "rank is 4; expected 0 to 3");
  request.rank = -1;
  ExpectInvalid(request, "rank is -1");
  request = good;
  request.count = -1;
  ExpectInvalid(request, "count is -1");
  request.count = kMaxScheduleElements + 1;
  ExpectInvalid(request, "count is");
  request = good;
  request.counts = {1, 2, 3, 4};
  ExpectInvalid(request, "all-reduce: count is 10; expected 0");
  request.count = 0;
  EXPECT_TRUE(MakeSchedule(request).ok());
  request.counts = {1, 2, 3};
  ExpectInvalid(request, "counts has 3 entries; expected 4");
  request = {.collective = Collective::kReduce, .size = 4, .counts = {1, 2, 3, 4}};
  ExpectInvalid(request, "counts has 4 entries; expected 0");
  request = good;
  request.root = 1;
  ExpectInvalid(request, "root is 1; expected 0 to 0");
  request.collective = Collective::kBroadcast;
  request.root = 4;
  ExpectInvalid(request, "root is 4; expected 0 to 3");
  request = {.collective = Collective::kReduceScatter, .size = 4, .counts = {1, 2, 3}};
  ExpectInvalid(request, "counts has 3 entries; expected 4");
  request.counts = {1, 2, -3, 4};
  ExpectInvalid(request, "counts[2] is -3");
  request.counts = {1, kMaxScheduleElements, 1, 1};
  ExpectInvalid(request, "counts[1] is");
  request.counts = {1, 2, 3, 4};
  request.count = 10;
  ExpectInvalid(request, "count is 10; expected 0");
  request = good;
  request.contributors = 2;
  ExpectInvalid(request, "all-reduce: contributors is 2; expected 0 to 0");
  request = good;
  request.order_counts = {10};
  ExpectInvalid(request, "order_counts has 1 entries; expected 0");
  const ScheduleRequest push = {.collective = Collective::kPush,
                                .algorithm = Algorithm::kDirect,
                                .size = 4,
                                .counts = {1, 2, 3, 4},
                                .contributors = 2,
                                .order_counts = {4, 6}};
  EXPECT_TRUE(MakeSchedule(push).ok());
  request = push;
  request.contributors = 0;
  ExpectInvalid(request, "push: contributors is 0; expected 1 to 4");
  request.contributors = 5;
  ExpectInvalid(request, "push: contributors is 5; expected 1 to 4");
  request.contributors = 3;
  ExpectInvalid(request, "order_counts has 2 entries; expected 3, one for each contributor");
  request = push;
  request.order_counts = {4, 5};
  ExpectInvalid(request, "order_counts has 9 elements in all; expected those of counts, 10");
  request.order_counts = {-4, 14};
  ExpectInvalid(request, "order_counts[0] is -4");
  request = push;
  request.counts = {10};
  ExpectInvalid(request, "counts has 1 entries; expected 4");
  request = push;
  request.algorithm = Algorithm::kRing;
  ExpectInvalid(request, "algorithm is ring (1); expected direct");
  request = push;
  request.collective = Collective::kPull;
  ExpectInvalid(request, "pull: order_counts has 2 entries; expected 0");
  request.order_counts.clear();
  EXPECT_TRUE(MakeSchedule(request).ok());
  request = {.collective = Collective::kBarrier, .size = 4, .count = 1};
  ExpectInvalid(request, "barrier: count is 1");
}

}  // namespace
}  // namespace muster
