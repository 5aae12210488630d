#include "collectives/engine/wait_watch.h"

#include <map>
#include <thread>

#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collectives/engine/communicator_fixture.h"
#include "tests/wait_until.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Verdict = WaitWatch::Verdict;

absl::Time At(int ms) { return absl::UnixEpoch() + absl::Milliseconds(ms); }

TEST(WaitWatchTest, ReportsWhatStandsAndThatItIsOver) {
  WaitWatch watch(absl::Milliseconds(100));
  EXPECT_EQ(watch.Look(1, At(0)), Verdict::kNothing);
  EXPECT_EQ(watch.next_look(), At(100));
  EXPECT_EQ(watch.Look(1, At(99)), Verdict::kNothing);
  EXPECT_EQ(watch.Look(1, At(100)), Verdict::kStands);
  EXPECT_EQ(watch.waited(), absl::Milliseconds(100));
  EXPECT_EQ(watch.Look(1, At(150)), Verdict::kNothing);  // often enough
  EXPECT_EQ(watch.Look(1, At(210)), Verdict::kStands);
  EXPECT_EQ(watch.waited(), absl::Milliseconds(210));
  EXPECT_EQ(watch.Look(2, At(215)), Verdict::kOver);
  EXPECT_EQ(watch.waited(), absl::Milliseconds(215));
  EXPECT_EQ(watch.next_look(), At(315));
  EXPECT_EQ(watch.End(At(216)), Verdict::kNothing);  // nothing was told of this one
}

TEST(WaitWatchTest, WhatMovesIsNotReportedHoweverLongItTakes) {
  WaitWatch watch(absl::Milliseconds(100));
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(watch.Look(static_cast<uint64_t>(i), At(i * 99)), Verdict::kNothing);
  }
}

TEST(WaitWatchTest, EndsWithTheOperation) {
  WaitWatch watch(absl::Milliseconds(100));
  watch.Look(1, At(0));
  EXPECT_EQ(watch.Look(1, At(100)), Verdict::kStands);
  EXPECT_EQ(watch.End(At(130)), Verdict::kOver);
  EXPECT_EQ(watch.waited(), absl::Milliseconds(130));
  EXPECT_EQ(watch.End(At(140)), Verdict::kNothing);
}

// What the communicators of a fleet report, by rank.
class Waits {
 public:
  std::function<void(const OperationWait&)> Of(Rank rank) {
    return [this, rank](const OperationWait& wait) {
      MutexLock lock(&mutex_);
      newest_[rank] = wait;
    };
  }
  // What `rank` reported last, once `wanted` says so.
  OperationWait Await(Rank rank, const std::function<bool(const OperationWait&)>& wanted) {
    MutexLock lock(&mutex_);
    const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      const auto found = newest_.find(rank);
      return found != newest_.end() && wanted(found->second);
    };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(Condition(&there), kTestPatience)) << rank;
    return newest_[rank];
  }
  bool Reported(Rank rank) {
    MutexLock lock(&mutex_);
    return newest_.contains(rank);
  }

 private:
  Mutex mutex_;
  std::map<Rank, OperationWait> newest_ ABSL_GUARDED_BY(mutex_);
};

class CommunicatorWaitTest : public ::testing::TestWithParam<MeshKind> {
 protected:
  std::vector<std::unique_ptr<Communicator>> Make(int world_size) {
    mesh_ = MakeMesh(GetParam(), world_size);
    std::vector<std::unique_ptr<Communicator>> ranks;
    for (Rank r = 0; r < world_size; ++r) {
      CommunicatorOptions options;
      options.wait_report_interval = absl::Milliseconds(10);
      options.on_wait = waits_.Of(r);
      ranks.push_back(Communicator::Create(std::move(mesh_.ends[r]), options).value());
    }
    return ranks;
  }
  static Work Start(Communicator& communicator, std::vector<float>& data, Algorithm algorithm) {
    CollectiveOptions options;
    options.algorithm = algorithm;
    options.label = "bucket 3";
    options.step = 17;
    return communicator.AllReduce(data.data(), data.data(), static_cast<int64_t>(data.size()),
                                  DType::kF32, ReduceOp::kSum, options);
  }

  TestMesh mesh_;
  Waits waits_;
};

TEST_P(CommunicatorWaitTest, EachRankOfARingNamesTheOneBeforeIt) {
  constexpr int kRanks = 4;
  constexpr Rank kLate = 2;
  auto ranks = Make(kRanks);
  std::vector<std::vector<float>> data(kRanks, std::vector<float>(1000, 1.0f));
  std::vector<Work> works;
  for (Rank r = 0; r < kRanks; ++r) {
    works.push_back(r == kLate ? Work() : Start(*ranks[r], data[r], Algorithm::kRing));
  }
  for (const Rank r : {3, 0, 1}) {
    // One that has not heard of its own neighbour's call yet may name that one, too.
    const Rank before = (r + kRanks - 1) % kRanks;
    const OperationWait wait = waits_.Await(r, [before](const OperationWait& w) {
      return w.waits_for == std::vector<Rank>{before} && w.waited >= absl::Milliseconds(20);
    });
    EXPECT_THAT(wait.what, HasSubstr("ring"));
    EXPECT_EQ(wait.label, "bucket 3");
    EXPECT_EQ(wait.step, 17);
    EXPECT_FALSE(wait.over);
  }
  EXPECT_FALSE(waits_.Reported(kLate));
  works[kLate] = Start(*ranks[kLate], data[kLate], Algorithm::kRing);
  for (Work& work : works) EXPECT_TRUE(work.Wait().ok());
  for (const Rank r : {3, 0, 1}) {
    EXPECT_EQ(waits_.Await(r, [](const OperationWait& w) { return w.over; }).label, "bucket 3");
  }
}

TEST_P(CommunicatorWaitTest, AFailureEndsIt) {
  auto ranks = Make(2);
  std::vector<float> data(10);
  Work work = Start(*ranks[0], data, Algorithm::kDirect);
  EXPECT_THAT(waits_.Await(0, [](const OperationWait& w) { return !w.over; }).waits_for,
              ElementsAre(1));
  ranks[1]->Abort(absl::CancelledError("enough"));
  EXPECT_FALSE(work.Wait().ok());
  waits_.Await(0, [](const OperationWait& w) { return w.over; });
}

INSTANTIATE_TEST_SUITE_P(Meshes, CommunicatorWaitTest,
                         ::testing::Values(MeshKind::kInProcess, MeshKind::kTcp, MeshKind::kShm),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

}  // namespace
}  // namespace muster
