// What goes wrong: mismatched calls, deadlines, aborts, departures, bad arguments.
#include <atomic>
#include <future>

#include "tests/collectives/engine/communicator_fixture.h"
#include "tests/wait_until.h"

namespace muster {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CommunicatorFailureTest : public testing::TestWithParam<MeshKind> {
 protected:
  TestFleet Make(int world_size, CommunicatorOptions options = {}) {
    return MakeFleet(GetParam(), world_size, options);
  }
};

std::string Text(const absl::Status& status) { return std::string(status.message()); }

Work Sum(TestFleet& fleet, Rank r, std::vector<float>& data, CollectiveOptions options = {}) {
  return fleet.ranks[r]->AllReduce(data.data(), data.data(), static_cast<int64_t>(data.size()),
                                   DType::kF32, ReduceOp::kSum, options);
}

TEST_P(CommunicatorFailureTest, EachKindOfMismatchFailsEveryRankAndNamesBothCalls) {
  struct Case {
    const char* name;
    std::function<Work(Communicator&, void*)> odd;
  };
  const std::vector<int64_t> parts = {4, 4, 4};
  const std::vector<Case> cases = {
      {"12 elements",
       [](Communicator& c, void* data) {
         return c.AllReduce(data, data, 12, DType::kF32, ReduceOp::kSum);
       }},
      {"i32", [](Communicator& c,
                 void* data) { return c.AllReduce(data, data, 6, DType::kI32, ReduceOp::kSum); }},
      {"max", [](Communicator& c,
                 void* data) { return c.AllReduce(data, data, 6, DType::kF32, ReduceOp::kMax); }},
      {"root 2",
       [](Communicator& c, void* data) { return c.Broadcast(data, data, 6, DType::kF32, 2); }},
      {"ring",
       [](Communicator& c, void* data) {
         CollectiveOptions options;
         options.algorithm = Algorithm::kRing;
         return c.AllReduce(data, data, 6, DType::kF32, ReduceOp::kSum, options);
       }},
      {"0 elements",
       [](Communicator& c, void* data) {
         return c.AllReduce(data, data, 0, DType::kF32, ReduceOp::kSum);
       }},
      {"parts",
       [&parts](Communicator& c, void* data) {
         return c.AllGather(static_cast<float*>(data) + 8, data, parts, DType::kF32);
       }},
      {"barrier", [](Communicator& c, void*) { return c.Barrier(); }},
  };
  for (const Case& odd : cases) {
    SCOPED_TRACE(odd.name);
    TestFleet fleet = Make(3);
    RunRanks(3, [&](Rank r) {
      std::vector<float> data(16, 1.0f);
      Work work;
      if (r == 2) {
        work = odd.odd(*fleet.ranks[r], data.data());
      } else {
        std::vector<float> six(6, 1.0f);
        work = Sum(fleet, r, six);
        EXPECT_FALSE(work.Wait().ok());
      }
      const absl::Status status = work.Wait();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(Text(status), AllOf(HasSubstr("rank 2 called"), HasSubstr(odd.name),
                                      HasSubstr("all-reduce #1"), HasSubstr("6 elements")));
    });
  }
}

TEST_P(CommunicatorFailureTest, MismatchWithARankThatIsDoneIsNoticedWhileItIdles) {
  TestFleet fleet = Make(3);
  // Two issue a call that the third never makes; it is idle meanwhile, with one call behind it.
  RunRanks(3, [&](Rank r) {
    std::vector<float> data(100, 1.0f);
    ASSERT_TRUE(Sum(fleet, r, data).Wait().ok());
    if (r == 2) return;
    CollectiveOptions options;
    options.timeout = absl::Milliseconds(300);
    options.label = "bucket-7";
    options.step = 41;
    Work work = Sum(fleet, r, data, options);
    const absl::Status status = work.Wait();
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_THAT(Text(status), AllOf(HasSubstr("bucket-7"), HasSubstr("step 41"),
                                    HasSubstr("waits for rank 2"), HasSubstr("all-reduce #2")));
    EXPECT_EQ(work.culprit(), std::optional<Rank>(2));
  });
}

TEST_P(CommunicatorFailureTest, AbortFromAnotherThreadFailsEveryoneAndFreesTheBuffers) {
  for (int round = 0; round < 10; ++round) {
    TestFleet fleet = Make(3);
    RunRanks(3, [&](Rank r) {
      auto data = std::make_unique<std::vector<float>>(r == 2 ? 1 : 300000, 1.0f);
      if (r == 2) {
        LetTimePass(absl::Milliseconds(round), "aborts at another moment of the collective");
        fleet.ranks[r]->Abort(absl::AbortedError("view 9 begins"));
        return;
      }
      std::vector<Work> works;
      works.push_back(Sum(fleet, r, *data));
      const absl::Status status = works[0].Wait();
      data.reset();  // asan would see a late write.
      EXPECT_TRUE(absl::IsAborted(status)) << status;
      EXPECT_THAT(Text(status), HasSubstr("view 9 begins"));
      std::vector<float> more(10);
      EXPECT_TRUE(absl::IsAborted(Sum(fleet, r, more).Wait()));
    });
  }
}

TEST_P(CommunicatorFailureTest, AbortWhileItsOwnThreadsWait) {
  TestFleet fleet = Make(2);
  std::vector<float> data(100000, 1.0f);
  Work work = Sum(fleet, 0, data);
  std::vector<std::thread> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.emplace_back([work]() mutable { EXPECT_TRUE(absl::IsCancelled(work.Wait())); });
  }
  LetTimePass(absl::Milliseconds(5), "lets the waiters block first, most often");
  fleet.ranks[0]->Abort(absl::CancelledError("enough"));
  EXPECT_TRUE(work.Done());
  data = {};
  for (std::thread& waiter : waiters) waiter.join();
}

TEST_P(CommunicatorFailureTest, ARankThatLeavesFailsThoseWhoNeedItAndNobodyElse) {
  TestFleet fleet = Make(2);
  std::promise<void> left;
  RunRanks(2, [&](Rank r) {
    std::vector<float> data(50000, 1.0f);
    ASSERT_TRUE(Sum(fleet, r, data).Wait().ok());
    if (r == 1) {
      fleet.ranks[1].reset();
      left.set_value();
      return;
    }
    left.get_future().wait();
    EXPECT_FALSE(fleet.ranks[0]->failure().has_value());
    Work work = Sum(fleet, 0, data);
    EXPECT_TRUE(absl::IsUnavailable(work.Wait())) << work.status();
    EXPECT_THAT(Text(work.status()), HasSubstr("rank 1"));
    EXPECT_EQ(work.culprit(), std::optional<Rank>(1));
  });
}

TEST_P(CommunicatorFailureTest, AnIdleRankHearsOfAnAbort) {
  std::promise<void> heard;
  CommunicatorOptions options;
  std::atomic<int> calls{0};
  options.on_failure = [&](const MeshFailure& failure) {
    EXPECT_TRUE(absl::IsUnavailable(failure.status)) << failure.status;
    EXPECT_EQ(failure.culprit, std::optional<Rank>(2));
    if (++calls == 3) heard.set_value();
  };
  TestFleet fleet = Make(3, options);
  fleet.ranks[0]->Abort(absl::UnavailableError("rank 2 is gone"), 2);
  EXPECT_EQ(heard.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  fleet.ranks.clear();
  EXPECT_EQ(calls, 3);
}

TEST_P(CommunicatorFailureTest, BadArgumentsAreNamedAndDoNotLeaveOthersHanging) {
  std::vector<float> data(10, 1.0f);
  const std::vector<int64_t> three = {1, 2, 3};
  const std::vector<int64_t> negative = {1, -2};
  using Bad = std::function<Work(Communicator&)>;
  const std::vector<std::pair<const char*, Bad>> bad = {
      {"count",
       [&](Communicator& c) {
         return c.AllReduce(data.data(), data.data(), -1, DType::kF32, ReduceOp::kSum);
       }},
      {"null",
       [&](Communicator& c) {
         return c.AllReduce(nullptr, data.data(), 1, DType::kF32, ReduceOp::kSum);
       }},
      {"overlap",
       [&](Communicator& c) {
         return c.AllReduce(data.data(), data.data() + 1, 5, DType::kF32, ReduceOp::kSum);
       }},
      {"root",
       [&](Communicator& c) { return c.Broadcast(data.data(), data.data(), 5, DType::kF32, 2); }},
      {"counts",
       [&](Communicator& c) { return c.AllGather(data.data(), data.data(), three, DType::kF32); }},
      {"counts",
       [&](Communicator& c) {
         return c.AllGather(data.data(), data.data(), negative, DType::kF32);
       }},
  };
  for (const auto& [name, call] : bad) {
    SCOPED_TRACE(name);
    TestFleet fleet = Make(2);
    std::vector<float> other(10, 1.0f);
    Work waiting = Sum(fleet, 1, other);
    const absl::Status status = call(*fleet.ranks[0]).Wait();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(Text(status), HasSubstr(name));
    EXPECT_TRUE(absl::IsInvalidArgument(waiting.Wait())) << waiting.status();
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, CommunicatorFailureTest,
                         testing::Values(MeshKind::kInProcess, MeshKind::kTcp,
                                         MeshKind::kTcpThreeChannels, MeshKind::kGrpc,
                                         MeshKind::kOfi, MeshKind::kHostile, MeshKind::kShm),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace muster
