// Calls of some ranks only: sends between two, and collectives of the subgroups that Split makes.
#include <future>
#include <latch>

#include "tests/collectives/engine/communicator_fixture.h"

namespace muster {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class PairAndGroupTest : public testing::TestWithParam<MeshKind> {
 protected:
  TestFleet Make(int world_size, CommunicatorOptions options = {}) {
    return MakeFleet(GetParam(), world_size, options);
  }
};

std::string Text(const absl::Status& status) { return std::string(status.message()); }

Work SumOne(Communicator& communicator, int64_t& value) {
  return communicator.AllReduce(&value, &value, 1, DType::kI64, ReduceOp::kSum);
}

TEST_P(PairAndGroupTest, SendsMeetReceivesWithoutOtherRanks) {
  TestFleet fleet = Make(3);
  // Rank 1 takes no part until the barrier; sizes are on both sides of what is sent unasked.
  RunRanks(3, [&](Rank r) {
    for (const int64_t count : {0, 1, 500, 300'000}) {
      std::vector<int32_t> values(static_cast<size_t>(count), r == 0 ? 41 : 0);
      if (r == 0) {
        ASSERT_TRUE(fleet.ranks[r]->Send(values.data(), count, DType::kI32, 2).Wait().ok());
      }
      if (r == 2) {
        ASSERT_TRUE(fleet.ranks[r]->Receive(values.data(), count, DType::kI32, 0).Wait().ok());
        EXPECT_EQ(values, std::vector<int32_t>(values.size(), 41));
      }
    }
    EXPECT_TRUE(fleet.ranks[r]->Barrier().Wait().ok());
  });
}

TEST_P(PairAndGroupTest, EveryoneSendsToTheNextAtOnce) {
  constexpr int kSize = 4;
  constexpr int64_t kCount = 100'000;
  TestFleet fleet = Make(kSize);
  RunRanks(kSize, [&](Rank r) {
    for (int round = 0; round < 5; ++round) {
      const std::vector<int32_t> mine(kCount, r + round);
      std::vector<int32_t> theirs(kCount);
      Work send = fleet.ranks[r]->Send(mine.data(), kCount, DType::kI32, (r + 1) % kSize);
      Work receive =
          fleet.ranks[r]->Receive(theirs.data(), kCount, DType::kI32, (r + kSize - 1) % kSize);
      ASSERT_TRUE(send.Wait().ok() && receive.Wait().ok()) << receive.status();
      EXPECT_EQ(theirs[kCount - 1], (r + kSize - 1) % kSize + round);
    }
  });
}

// One forward, one backward over pipeline stages, with collectives between. Sends are not waited
// for: two neighbours send to each other at once.
TEST_P(PairAndGroupTest, OneForwardOneBackwardBesideCollectives) {
  constexpr int kStages = 3;
  constexpr int kMicroBatches = 6;
  TestFleet fleet = Make(kStages);
  RunRanks(kStages, [&](Rank stage) {
    Communicator& communicator = *fleet.ranks[stage];
    std::vector<int64_t> forward(kMicroBatches), backward(kMicroBatches);
    std::vector<Work> sends;
    const auto run_forward = [&](int m) {
      forward[m] = m;
      if (stage > 0) {
        ASSERT_TRUE(communicator.Receive(&forward[m], 1, DType::kI64, stage - 1).Wait().ok());
      }
      forward[m] = forward[m] * 10 + stage;
      if (stage + 1 < kStages) {
        sends.push_back(communicator.Send(&forward[m], 1, DType::kI64, stage + 1));
      }
    };
    const auto run_backward = [&](int m) {
      backward[m] = forward[m];
      if (stage + 1 < kStages) {
        ASSERT_TRUE(communicator.Receive(&backward[m], 1, DType::kI64, stage + 1).Wait().ok());
      }
      if (stage > 0) {
        sends.push_back(communicator.Send(&backward[m], 1, DType::kI64, stage - 1));
      }
    };
    for (int step = 0; step < 10; ++step) {
      const int warm_up = kStages - 1 - stage;
      for (int m = 0; m < kMicroBatches + warm_up; ++m) {
        if (m < kMicroBatches) run_forward(m);
        if (m >= warm_up) run_backward(m - warm_up);
      }
      for (int m = 0; m < kMicroBatches; ++m) EXPECT_EQ(backward[m], m * 1000 + 12);
      for (Work& send : sends) ASSERT_TRUE(send.Wait().ok()) << send.status();
      sends.clear();
      int64_t sum = stage;
      ASSERT_TRUE(SumOne(communicator, sum).Wait().ok());
      EXPECT_EQ(sum, 3);
    }
  });
}

TEST_P(PairAndGroupTest, SendThatDoesNotMatchItsReceiveFailsBothAndNamesBoth) {
  TestFleet fleet = Make(3);
  RunRanks(3, [&](Rank r) {
    std::vector<float> data(10);
    if (r == 1) return;
    Work work = r == 0 ? fleet.ranks[r]->Send(data.data(), 10, DType::kF32, 2)
                       : fleet.ranks[r]->Receive(data.data(), 9, DType::kF32, 0);
    // The sender may be done before it hears of it.
    (void)work.Wait();
    const absl::Status status = fleet.ranks[r]->Barrier().Wait();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(Text(status), AllOf(HasSubstr("send-receive #1 from rank 0 to rank 2"),
                                    HasSubstr("10 elements"), HasSubstr("9 elements")));
  });
}

TEST_P(PairAndGroupTest, SendWhereTheOtherCallsACollectiveIsAnError) {
  TestFleet fleet = Make(2);
  RunRanks(2, [&](Rank r) {
    std::vector<int64_t> values(100'000);
    Work work = r == 0 ? fleet.ranks[r]->Send(values.data(), 100'000, DType::kI64, 1)
                       : SumOne(*fleet.ranks[r], values[0]);
    // A send may be done before its receive is missed; what comes after it is not.
    (void)work.Wait();
    const absl::Status status = fleet.ranks[r]->Barrier().Wait();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(Text(status), HasSubstr("rank 1 called all-reduce #1"));
  });
}

TEST_P(PairAndGroupTest, SendToOneselfOrNobodyIsRefused) {
  for (const Rank to : {0, 2, -1}) {
    TestFleet fleet = Make(2);
    int64_t value = 0;
    const absl::Status status = fleet.ranks[0]->Send(&value, 1, DType::kI64, to).Wait();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(Text(status), HasSubstr("destination"));
  }
}

TEST_P(PairAndGroupTest, SplitByColorOrdersByKeyAndRunsBesideTheWhole) {
  constexpr int kSize = 6;
  TestFleet fleet = Make(kSize);
  RunRanks(kSize, [&](Rank r) {
    // Colors 0 and 1 in reverse order, 5 in none.
    auto split = fleet.ranks[r]->Split(r == 5 ? -1 : r % 2, -r);
    ASSERT_TRUE(split.ok()) << split.status();
    if (r == 5) {
      EXPECT_EQ(*split, nullptr);
    } else {
      const int members = r % 2 == 0 ? 3 : 2;
      ASSERT_EQ((*split)->world_size(), members);
      EXPECT_EQ((*split)->rank(), members - 1 - r / 2);
      for (int round = 0; round < 20; ++round) {
        for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kHalvingDoubling}) {
          std::vector<double> data(5'000, r);
          CollectiveOptions options;
          options.algorithm = algorithm;
          ASSERT_TRUE((*split)
                          ->AllReduce(data.data(), data.data(), 5'000, DType::kF64,
                                      ReduceOp::kAverage, options)
                          .Wait()
                          .ok());
          EXPECT_EQ(data[4'999], 2.0);  // (0 + 2 + 4) / 3 and (1 + 3) / 2
        }
        Rank first = r;
        ASSERT_TRUE((*split)->Broadcast(&first, &first, 1, DType::kI32, 0).Wait().ok());
        EXPECT_EQ(first, r % 2 == 0 ? 4 : 3);
        if (round % 4 == 0) {  // A subgroup of the subgroup: each rank alone.
          auto alone = (*split)->Split((*split)->rank(), 0);
          ASSERT_TRUE(alone.ok() && (*alone)->world_size() == 1);
          int64_t value = r;
          ASSERT_TRUE(SumOne(**alone, value).Wait().ok());
          EXPECT_EQ(value, r);
        }
      }
    }
    int64_t sum = r;
    ASSERT_TRUE(SumOne(*fleet.ranks[r], sum).Wait().ok());
    EXPECT_EQ(sum, 15);
  });
}

TEST_P(PairAndGroupTest, ARankThatExitsBeforeTheFirstCollectiveOfASubgroupIsNamed) {
  TestFleet fleet = Make(4);
  std::promise<void> left;
  std::shared_future<void> has_left = left.get_future().share();
  std::latch all_out(4);
  RunRanks(4, [&](Rank r) {
    auto split = fleet.ranks[r]->Split(r / 2, 0);
    ASSERT_TRUE(split.ok()) << split.status();
    // All are out of the split before one goes.
    ASSERT_TRUE(fleet.ranks[r]->Barrier().Wait().ok());
    all_out.arrive_and_wait();
    if (r == 3) {
      split->reset();
      fleet.ranks[3].reset();
      left.set_value();
      return;
    }
    has_left.wait();
    int64_t value = 1;
    if (r < 2) return;  // The other subgroup needs nothing of it.
    Work work = SumOne(**split, value);
    EXPECT_TRUE(absl::IsUnavailable(work.Wait())) << work.status();
    EXPECT_THAT(Text(work.status()), HasSubstr("rank 3"));
    EXPECT_EQ(work.culprit(), std::optional<Rank>(3));
  });
}

TEST_P(PairAndGroupTest, ASubgroupGoesOnWithoutARankOfAnother) {
  TestFleet fleet = Make(4);
  std::promise<void> left;
  std::shared_future<void> has_left = left.get_future().share();
  std::latch all_out(4);
  RunRanks(4, [&](Rank r) {
    auto split = fleet.ranks[r]->Split(r / 2, 0);
    ASSERT_TRUE(split.ok()) << split.status();
    ASSERT_TRUE(fleet.ranks[r]->Barrier().Wait().ok());
    all_out.arrive_and_wait();
    if (r == 3) {
      split->reset();
      fleet.ranks[3].reset();
      left.set_value();
    }
    has_left.wait();
    if (r >= 2) return;
    int64_t value = 1;
    Work work = SumOne(**split, value);
    EXPECT_TRUE(work.Wait().ok()) << work.status();
    EXPECT_EQ(value, 2);
  });
}

INSTANTIATE_TEST_SUITE_P(Meshes, PairAndGroupTest,
                         testing::Values(MeshKind::kInProcess, MeshKind::kTcp,
                                         MeshKind::kTcpThreeChannels, MeshKind::kGrpc,
                                         MeshKind::kShm, MeshKind::kShmRegistered,
                                         MeshKind::kShmStaged, MeshKind::kTwoLevel),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace muster
