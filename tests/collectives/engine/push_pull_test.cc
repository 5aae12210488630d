// Pushes and pulls over every transport, against an oracle that adds by hand.
#include <cstring>
#include <future>
#include <numeric>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "tests/collectives/engine/communicator_fixture.h"

namespace muster {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

// Who owns what of a vector.
struct Layout {
  std::vector<int64_t> counts;
  std::vector<int64_t> order_counts;
  int size() const { return static_cast<int>(counts.size()); }
  int workers() const { return static_cast<int>(order_counts.size()); }
  int64_t total() const { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }
  int64_t OffsetOf(Rank rank) const {
    return std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
  }
};

// Four ranks, 1 to 4 of them workers; segments of 64 elements and less lie within every piece.
std::vector<Layout> Layouts() {
  return {
      {{0, 0, 500, 501}, {501, 500}},         // servers alone
      {{600, 401, 0, 0}, {300, 701}},         // workers alone
      {{100, 0, 700, 201}, {0, 1001}},        // both
      {{0, 0, 0, 1001}, {334, 334, 333}},     // one server
      {{111, 112, 113, 665}, {1, 500, 500}},  // orders that straddle
      {{250, 250, 250, 251}, {1001}},         // one worker
      {{1001, 0, 0, 0}, {200, 300, 400, 101}},
      {{250, 250, 250, 251}, {250, 250, 250, 251}},  // the direct exchange
      {{0, 0, 0, 0}, {0, 0}},
      {{0, 1, 0, 0}, {0, 1}},
  };
}

CommunicatorOptions SmallSegments() {
  CommunicatorOptions options;
  options.segment_bytes = 256;
  return options;
}

class PushPullTest : public testing::TestWithParam<MeshKind> {};

TEST_P(PushPullTest, GiveTheBitsOfAnAllReduceAmongTheWorkers) {
  for (const Layout& layout : Layouts()) {
    TestFleet fleet = MakeFleet(GetParam(), layout.size(), SmallSegments());
    std::vector<std::unique_ptr<Communicator>> groups(layout.size());
    RunRanks(layout.size(), [&](Rank r) {
      auto group = fleet.ranks[r]->Split(r < layout.workers() ? 0 : -1, r);
      ASSERT_TRUE(group.ok()) << group.status();
      groups[r] = *std::move(group);
    });
    uint64_t seed = 100;
    for (const DType dtype : kAllDTypes) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin}) {
        const size_t element = SizeOf(dtype);
        std::vector<Bytes> inputs;
        ++seed;
        for (Rank r = 0; r < layout.workers(); ++r) {
          inputs.push_back(RandomElements(dtype, layout.total(), seed, r));
        }
        const Bytes expected = ReduceCanonically(dtype, op, inputs, layout.order_counts);
        RunRanks(layout.size(), [&](Rank r) {
          SCOPED_TRACE(absl::StrCat("rank ", r, " ", std::string(Name(dtype)), " ",
                                    std::string(Name(op)), " order ", layout.order_counts[0]));
          const bool works = r < layout.workers();
          const size_t offset = static_cast<size_t>(layout.OffsetOf(r)) * element;
          const size_t bytes = static_cast<size_t>(layout.counts[r]) * element;
          const Bytes own(expected.begin() + offset, expected.begin() + offset + bytes);
          Communicator& communicator = *fleet.ranks[r];
          for (const bool in_place : {false, true}) {
            Bytes vector = works ? inputs[r] : Bytes();
            Bytes chunk(bytes, std::byte{0x5a});
            if (in_place && works) {
              std::byte* const at = vector.data() + offset;
              Work push = communicator.Push(vector.data(), at, layout.counts, layout.order_counts,
                                            dtype, op);
              ASSERT_TRUE(push.Wait().ok()) << push.status();
              Bytes wanted = inputs[r];
              std::copy(own.begin(), own.end(), wanted.begin() + offset);
              ASSERT_EQ(vector, wanted);
              Work pull =
                  communicator.Pull(at, vector.data(), layout.counts, layout.workers(), dtype);
              ASSERT_TRUE(pull.Wait().ok()) << pull.status();
              ASSERT_EQ(vector, expected);
              continue;
            }
            Bytes result(works ? expected.size() : 0);
            Work push = communicator.Push(works ? vector.data() : nullptr, chunk.data(),
                                          layout.counts, layout.order_counts, dtype, op);
            ASSERT_TRUE(push.Wait().ok()) << push.status();
            ASSERT_EQ(chunk, own);
            if (works) {
              ASSERT_EQ(vector, inputs[r]);
            }
            Work pull = communicator.Pull(chunk.data(), works ? result.data() : nullptr,
                                          layout.counts, layout.workers(), dtype);
            ASSERT_TRUE(pull.Wait().ok()) << pull.status();
            if (works) {
              ASSERT_EQ(result, expected);
            }
          }
          if (!works) return;
          Bytes sum(expected.size());
          Work reduce =
              groups[r]->AllReduceV(inputs[r].data(), sum.data(), layout.order_counts, dtype, op);
          ASSERT_TRUE(reduce.Wait().ok()) << reduce.status();
          ASSERT_EQ(sum, expected);
        });
      }
    }
  }
}

// Inside the hosts first: sums in another order, so within rounding of those in double precision,
// and the same ones each time.
TEST_P(PushPullTest, OverHostsTheyGiveTheSumsOfAllWorkers) {
  struct Hosts {
    Layout layout;
    std::vector<int32_t> hosts;
  };
  const std::vector<Hosts> cases = {
      {{{0, 0, 0, 0, 500, 501}, {1001, 0, 0, 0}}, {0, 0, 1, 1, 2, 3}},    // 2 + 2, servers apart
      {{{0, 0, 0, 0, 0, 1001}, {1001, 0, 0, 0, 0}}, {0, 0, 1, 1, 1, 0}},  // 2 + 3, one beside
      {{{250, 251, 0, 500}, {1001, 0, 0, 0}}, {0, 1, 0, 1}},              // owners are workers
      {{{100, 101, 102, 103, 595}, {1001, 0, 0, 0}}, {3, 3, 3, 8, 9}},    // both, 3 + 1
      {{{400, 300, 301}, {1001, 0, 0}}, {0, 0, 0}},                       // one host
      {{{0, 0, 1001}, {1001, 0}}, {0, 1, 2}},                             // one worker each
  };
  for (const auto& [layout, hosts] : cases) {
    CommunicatorOptions options = SmallSegments();
    options.hosts = hosts;
    TestFleet fleet = MakeFleet(GetParam(), layout.size(), options);
    std::vector<std::vector<float>> inputs(static_cast<size_t>(layout.workers()));
    std::vector<double> expected(static_cast<size_t>(layout.total()), 0.0);
    for (Rank r = 0; r < layout.workers(); ++r) {
      const Bytes bytes = RandomElements(DType::kF32, layout.total(), 300, r);
      inputs[r].resize(expected.size());
      std::memcpy(inputs[r].data(), bytes.data(), bytes.size());
      for (size_t i = 0; i < expected.size(); ++i) expected[i] += inputs[r][i];
    }
    std::vector<std::vector<float>> sums(static_cast<size_t>(layout.size()));
    RunRanks(layout.size(), [&, &layout = layout, &hosts = hosts](Rank r) {
      SCOPED_TRACE(absl::StrCat("rank ", r, " of hosts ", absl::StrJoin(hosts, ",")));
      const bool works = r < layout.workers();
      const auto offset = static_cast<size_t>(layout.OffsetOf(r));
      CollectiveOptions by;
      by.algorithm = Algorithm::kHierarchical;
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
        const double share = op == ReduceOp::kAverage ? 1.0 / layout.workers() : 1.0;
        for (const bool in_place : {false, true}) {
          std::vector<float> vector = works ? inputs[r] : std::vector<float>();
          std::vector<float> chunk(static_cast<size_t>(layout.counts[r]));
          std::vector<float> result = works ? std::vector<float>(expected.size()) : vector;
          const bool shares = in_place && works;
          float* const own = shares ? vector.data() + offset : chunk.data();
          Work push = fleet.ranks[r]->Push(works ? vector.data() : nullptr, own, layout.counts,
                                           layout.order_counts, DType::kF32, op, by);
          ASSERT_TRUE(push.Wait().ok()) << push.status();
          if (works && !in_place) {
            ASSERT_EQ(vector, inputs[r]);
          }
          float* const all = shares ? vector.data() : works ? result.data() : nullptr;
          Work pull =
              fleet.ranks[r]->Pull(own, all, layout.counts, layout.workers(), DType::kF32, by);
          ASSERT_TRUE(pull.Wait().ok()) << pull.status();
          if (!works) continue;
          for (size_t i = 0; i < expected.size(); ++i) {
            ASSERT_NEAR(all[i], expected[i] * share, 1e-5 * layout.workers()) << i;
          }
          if (op != ReduceOp::kSum) continue;
          if (!in_place) {
            sums[r] = result;
          } else {
            ASSERT_EQ(vector, sums[r]) << "other bits the second time";
          }
        }
      }
    });
    for (Rank r = 1; r < layout.workers(); ++r) ASSERT_EQ(sums[r], sums[0]) << r;
  }
}

TEST_P(PushPullTest, OverHostsSixteenBitSumsAreRefused) {
  CommunicatorOptions options;
  options.hosts = {0, 0};
  TestFleet fleet = MakeFleet(GetParam(), 2, options);
  const std::vector<int64_t> counts = {2, 2};
  RunRanks(2, [&](Rank r) {
    std::vector<uint16_t> data(4), own(2);
    CollectiveOptions by;
    by.algorithm = Algorithm::kHierarchical;
    Work push = fleet.ranks[r]->Push(data.data(), own.data(), counts, counts, DType::kBF16,
                                     ReduceOp::kSum, by);
    const absl::Status status = push.Wait();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(Text(status), HasSubstr("would round 16-bit floats at every hop"));
  });
}

// Many issued ahead, of which the later overlap the earlier; messages on both sides of what is sent
// unasked.
TEST_P(PushPullTest, ManyAreIssuedAhead) {
  constexpr int kBuckets = 20;
  const Layout layout = {{20'000, 0, 0, 50'000, 30'001}, {1, 60'000, 40'000}};
  TestFleet fleet = MakeFleet(GetParam(), layout.size());
  std::vector<std::vector<Bytes>> inputs(kBuckets);
  std::vector<Bytes> expected;
  for (int bucket = 0; bucket < kBuckets; ++bucket) {
    for (Rank r = 0; r < layout.workers(); ++r) {
      inputs[bucket].push_back(
          RandomElements(DType::kF32, layout.total(), 7000 + static_cast<uint64_t>(bucket), r));
    }
    expected.push_back(
        ReduceCanonically(DType::kF32, ReduceOp::kSum, inputs[bucket], layout.order_counts));
  }
  RunRanks(layout.size(), [&](Rank r) {
    const bool works = r < layout.workers();
    std::vector<Bytes> chunks(kBuckets, Bytes(static_cast<size_t>(layout.counts[r]) * 4));
    std::vector<Bytes> results(kBuckets,
                               Bytes(works ? static_cast<size_t>(layout.total()) * 4 : 0));
    std::vector<Work> pushes;
    for (int bucket = 0; bucket < kBuckets; ++bucket) {
      pushes.push_back(fleet.ranks[r]->Push(works ? inputs[bucket][r].data() : nullptr,
                                            chunks[bucket].data(), layout.counts,
                                            layout.order_counts, DType::kF32, ReduceOp::kSum));
    }
    Work last;
    for (int bucket = 0; bucket < kBuckets; ++bucket) {
      ASSERT_TRUE(pushes[bucket].Wait().ok()) << pushes[bucket].status();
      last = fleet.ranks[r]->Pull(chunks[bucket].data(), results[bucket].data(), layout.counts,
                                  layout.workers(), DType::kF32);
    }
    ASSERT_TRUE(last.Wait().ok()) << last.status();
    for (int bucket = 0; works && bucket < kBuckets; ++bucket)
      ASSERT_EQ(results[bucket], expected[bucket]);
  });
}

TEST_P(PushPullTest, EachKindOfMismatchFailsEveryRankAndNamesBothCalls) {
  const std::vector<int64_t> counts = {0, 2, 4};
  const std::vector<int64_t> other_counts = {2, 0, 4};
  const std::vector<int64_t> order = {3, 3};
  const std::vector<int64_t> other_order = {4, 2};
  const std::vector<int64_t> order_of_three = {2, 2, 2};
  struct Case {
    const char* name;
    std::function<Work(Communicator&, float*)> odd;
  };
  const auto push = [](const std::vector<int64_t>& c, const std::vector<int64_t>& o, ReduceOp op) {
    return [&c, &o, op](Communicator& communicator, float* data) {
      return communicator.Push(data, data + 8, c, o, DType::kF32, op);
    };
  };
  const std::vector<Case> cases = {
      {"(f32, sum, 6 elements, parts ", push(other_counts, order, ReduceOp::kSum)},
      {"(f32, sum, 6 elements, parts ", push(counts, other_order, ReduceOp::kSum)},
      {"3 contributors", push(counts, order_of_three, ReduceOp::kSum)},
      {"push #1 (f32, max", push(counts, order, ReduceOp::kMax)},
      {"pull #1 (f32, 6 elements", [&](Communicator& communicator, float* data) {
         return communicator.Pull(data, data + 8, counts, 2, DType::kF32);
       }}};
  for (const Case& odd_case : cases) {
    for (const Rank odd : {0, 1, 2}) {
      SCOPED_TRACE(absl::StrCat(odd_case.name, " on rank ", odd));
      TestFleet fleet = MakeFleet(GetParam(), 3);
      RunRanks(3, [&](Rank r) {
        std::vector<float> data(16, 1.0f);
        const auto right = push(counts, order, ReduceOp::kSum);
        Work work = r == odd ? odd_case.odd(*fleet.ranks[r], data.data())
                             : right(*fleet.ranks[r], data.data());
        // Who sends only may be done before it hears of it.
        (void)work.Wait();
        const absl::Status status = fleet.ranks[r]->Barrier().Wait();
        EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
        EXPECT_THAT(
            Text(status),
            AllOf(HasSubstr(absl::StrCat("rank ", odd, " called")), HasSubstr(odd_case.name),
                  HasSubstr("push #1 (f32, sum, 6 elements"), HasSubstr("2 contributors")));
      });
    }
  }
}

TEST_P(PushPullTest, PullsOfDifferentNumbersOfWorkersDoNotMatch) {
  TestFleet fleet = MakeFleet(GetParam(), 3);
  const std::vector<int64_t> counts = {1, 0, 3};
  RunRanks(3, [&](Rank r) {
    std::vector<int32_t> data(8);
    Work work =
        fleet.ranks[r]->Pull(data.data(), data.data() + 4, counts, r == 2 ? 1 : 2, DType::kI32);
    (void)work.Wait();
    const absl::Status status = fleet.ranks[r]->Barrier().Wait();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(Text(status), AllOf(HasSubstr("2 contributors"), HasSubstr("1 contributors"),
                                    HasSubstr("rank 2 called")));
  });
}

// In the middle of a step: the one that goes has called a push, but will not see it end.
TEST_P(PushPullTest, AServerOrAWorkerThatGoesInTheMiddleFailsEveryoneAndIsNamed) {
  constexpr int64_t kCount = 100'000;
  const Layout layout = {{0, 0, kCount, kCount}, {kCount, kCount}};
  for (const Rank gone : {0, 1, 2, 3}) {
    SCOPED_TRACE(gone);
    TestFleet fleet = MakeFleet(GetParam(), layout.size());
    RunRanks(layout.size(), [&](Rank r) {
      std::vector<float> vector(2 * kCount, 1.0f);
      std::vector<float> chunk(kCount);
      for (int step = 0;; ++step) {
        Work push = fleet.ranks[r]->Push(vector.data(), chunk.data(), layout.counts,
                                         layout.order_counts, DType::kF32, ReduceOp::kMax);
        if (r == gone && step == 3) return fleet.ranks[r].reset();
        Work pull =
            fleet.ranks[r]->Pull(chunk.data(), vector.data(), layout.counts, 2, DType::kF32);
        const absl::Status status = pull.Wait();
        if (status.ok()) continue;
        EXPECT_TRUE(absl::IsUnavailable(status)) << status;
        EXPECT_THAT(Text(status), HasSubstr(absl::StrCat("rank ", gone)));
        EXPECT_EQ(pull.culprit(), std::optional<Rank>(gone));
        return;
      }
    });
  }
}

TEST_P(PushPullTest, BadArgumentsAreNamedAndDoNotLeaveOthersHanging) {
  std::vector<float> data(10, 1.0f);
  const std::vector<int64_t> counts = {2, 3};
  const std::vector<int64_t> all = {5};
  const std::vector<int64_t> four = {4};
  const std::vector<int64_t> none;
  using Bad = std::function<Work(Communicator&)>;
  const std::vector<std::pair<const char*, Bad>> bad = {
      {"push: order_counts has 4 elements in all; expected those of counts, 5",
       [&](Communicator& c) {
         return c.Push(data.data(), data.data(), counts, four, DType::kF32, ReduceOp::kSum);
       }},
      {"push: contributors is 0; expected 1 to 2",
       [&](Communicator& c) {
         return c.Push(data.data(), data.data(), counts, none, DType::kF32, ReduceOp::kSum);
       }},
      {"pull: contributors is 3; expected 1 to 2",
       [&](Communicator& c) { return c.Pull(data.data(), data.data(), counts, 3, DType::kF32); }},
      {"a buffer is null",
       [&](Communicator& c) {
         return c.Push(nullptr, data.data(), counts, all, DType::kF32, ReduceOp::kSum);
       }},
      {"overlap",
       [&](Communicator& c) {
         return c.Push(data.data(), data.data() + 1, counts, all, DType::kF32, ReduceOp::kSum);
       }},
      {"window",
       [&](Communicator& c) {
         CollectiveOptions options;
         options.algorithm = Algorithm::kWindow;
         return c.Pull(data.data(), data.data(), counts, 1, DType::kF32, options);
       }},
  };
  for (const auto& [name, call] : bad) {
    SCOPED_TRACE(name);
    TestFleet fleet = MakeFleet(GetParam(), 2);
    std::vector<float> chunk(3);
    Work waiting =
        fleet.ranks[1]->Push(nullptr, chunk.data(), counts, all, DType::kF32, ReduceOp::kSum);
    const absl::Status status = call(*fleet.ranks[0]).Wait();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(Text(status), HasSubstr(name));
    EXPECT_TRUE(absl::IsInvalidArgument(waiting.Wait())) << waiting.status();
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, PushPullTest,
                         testing::Values(MeshKind::kInProcess, MeshKind::kTcp,
                                         MeshKind::kTcpThreeChannels, MeshKind::kGrpc,
                                         MeshKind::kOfi, MeshKind::kHostile, MeshKind::kShm,
                                         MeshKind::kShmRegistered, MeshKind::kShmStaged,
                                         MeshKind::kTwoLevel),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace muster
