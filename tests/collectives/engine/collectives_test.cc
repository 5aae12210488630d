// Every collective against a plain oracle, bit for bit, over transport x ranks x size x algorithm x
// type.
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"
#include "tests/collectives/engine/communicator_fixture.h"
#include "tests/wait_until.h"

namespace muster {
namespace {

struct Shape {
  MeshKind kind;
  int world_size;
};

class CollectivesTest : public testing::TestWithParam<Shape> {
 protected:
  CollectivesTest() {
    CommunicatorOptions options;
    options.segment_bytes = 1024;  // Many segments at small sizes.
    options.spin = absl::ZeroDuration();
    fleet_ = MakeFleet(GetParam().kind, GetParam().world_size, options);
  }
  int size() const { return GetParam().world_size; }

  TestFleet fleet_;
};

constexpr Algorithm kAlgorithms[] = {Algorithm::kAuto, Algorithm::kRing, Algorithm::kDirect};

// The cut decides the order of summation, so that replicated and sharded gradients have the same
// bits.
TEST_P(CollectivesTest, AllReduceAndReduceScatterOfOneCutGiveTheSameBits) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (Algorithm algorithm : {Algorithm::kAuto, Algorithm::kRing, Algorithm::kDirect,
                                Algorithm::kStar, Algorithm::kHalvingDoubling}) {
      if (!KeepsCanonicalOrder(Collective::kAllReduce, algorithm) && IsHalfPrecision(dtype)) {
        continue;
      }
      for (const int64_t total : {0, 2, 5003}) {
        SCOPED_TRACE(absl::StrFormat("%s %s %d", Name(dtype), Name(algorithm), total));
        // The last rank owns most and the first nothing, unless it is alone.
        std::vector<int64_t> counts = EvenCounts(total, size());
        counts[size() - 1] += std::exchange(counts[0], 0);
        std::vector<Bytes> inputs;
        for (Rank r = 0; r < size(); ++r) inputs.push_back(RandomElements(dtype, total, 11, r));
        Bytes gathered;
        std::vector<Bytes> parts(size());
        std::vector<Bytes> outputs = inputs;
        RunRanks(size(), [&](Rank r) {
          CollectiveOptions options;
          options.algorithm = algorithm;
          Work reduced = fleet_.ranks[r]->AllReduceV(outputs[r].data(), outputs[r].data(), counts,
                                                     dtype, ReduceOp::kSum, options);
          // A star has no reduce-scatter; all in canonical order give one result.
          if (algorithm == Algorithm::kStar) options.algorithm = Algorithm::kAuto;
          parts[r].resize(static_cast<size_t>(counts[r]) * SizeOf(dtype));
          Work scattered = fleet_.ranks[r]->ReduceScatter(inputs[r].data(), parts[r].data(), counts,
                                                          dtype, ReduceOp::kSum, options);
          ASSERT_TRUE(reduced.Wait().ok()) << reduced.status();
          ASSERT_TRUE(scattered.Wait().ok()) << scattered.status();
        });
        for (const Bytes& part : parts) gathered.insert(gathered.end(), part.begin(), part.end());
        for (Rank r = 0; r < size(); ++r) ASSERT_EQ(outputs[r], gathered) << "rank " << r;
        if (!KeepsCanonicalOrder(Collective::kAllReduce, algorithm)) continue;
        ASSERT_EQ(gathered, ReduceCanonically(dtype, ReduceOp::kSum, inputs, counts));
      }
    }
  }
}

TEST_P(CollectivesTest, AllReduceOfEveryTypeAndOpMatchesTheOracle) {
  for (DType dtype : kAllDTypes) {
    for (ReduceOp op : kAllReduceOps) {
      for (Algorithm algorithm : kAlgorithms) {
        for (int64_t count : {0, 1, 3, 1000, 5003}) {
          const bool in_place = count % 2 == 1;
          SCOPED_TRACE(
              absl::StrFormat("%s %s %s %d", Name(dtype), Name(op), Name(algorithm), count));
          std::vector<Bytes> inputs;
          for (Rank r = 0; r < size(); ++r) inputs.push_back(RandomElements(dtype, count, 7, r));
          const Bytes expected = ReduceCanonically(dtype, op, inputs, EvenCounts(count, size()));
          std::vector<Bytes> outputs = inputs;
          RunRanks(size(), [&](Rank r) {
            CollectiveOptions options;
            options.algorithm = algorithm;
            options.caller_waits = r % 2 == 0;
            const void* input = in_place ? outputs[r].data() : inputs[r].data();
            Work work =
                fleet_.ranks[r]->AllReduce(input, outputs[r].data(), count, dtype, op, options);
            ASSERT_TRUE(work.Wait().ok()) << work.status();
          });
          for (Rank r = 0; r < size(); ++r) ASSERT_EQ(outputs[r], expected) << "rank " << r;
        }
      }
    }
  }
}

TEST_P(CollectivesTest, UnevenReduceScatterAndAllGatherMatchTheOracle) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kU8}) {
    for (Algorithm algorithm : kAlgorithms) {
      for (bool in_place : {false, true}) {
        SCOPED_TRACE(absl::StrFormat("%s %s %d", Name(dtype), Name(algorithm), in_place));
        std::vector<int64_t> counts;
        for (int r = 0; r < size(); ++r) counts.push_back(r == 1 ? 0 : 700 * r + 1);
        const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
        const size_t element = SizeOf(dtype);
        std::vector<size_t> offsets(1, 0);
        for (int64_t count : counts) {
          offsets.push_back(offsets.back() + static_cast<size_t>(count) * element);
        }
        std::vector<Bytes> inputs;
        for (Rank r = 0; r < size(); ++r) inputs.push_back(RandomElements(dtype, total, 11, r));
        const Bytes expected = ReduceCanonically(dtype, ReduceOp::kSum, inputs, counts);
        std::vector<Bytes> gathered(size(), Bytes(expected.size()));
        RunRanks(size(), [&](Rank r) {
          CollectiveOptions options;
          options.algorithm = algorithm;
          Bytes mine(offsets[r + 1] - offsets[r]);
          std::byte* part = in_place ? inputs[r].data() + offsets[r] : mine.data();
          Work scatter = fleet_.ranks[r]->ReduceScatter(inputs[r].data(), part, counts, dtype,
                                                        ReduceOp::kSum, options);
          ASSERT_TRUE(scatter.Wait().ok()) << scatter.status();
          ASSERT_TRUE(mine.empty() ||
                      std::memcmp(part, expected.data() + offsets[r], mine.size()) == 0);
          if (in_place) {
            if (!mine.empty()) std::memcpy(gathered[r].data() + offsets[r], part, mine.size());
            part = gathered[r].data() + offsets[r];
          }
          Work gather =
              fleet_.ranks[r]->AllGather(part, gathered[r].data(), counts, dtype, options);
          ASSERT_TRUE(gather.Wait().ok()) << gather.status();
        });
        for (Rank r = 0; r < size(); ++r) ASSERT_EQ(gathered[r], expected) << "rank " << r;
      }
    }
  }
}

TEST_P(CollectivesTest, BroadcastReachesAllFromEveryRoot) {
  for (Rank root = 0; root < size(); ++root) {
    for (int64_t count : {0, 1, 10007}) {
      const Bytes expected = RandomElements(DType::kF64, count, 13, root);
      RunRanks(size(), [&](Rank r) {
        Bytes output(expected.size());
        const void* input = r == root ? expected.data() : nullptr;
        Work work = fleet_.ranks[r]->Broadcast(input, output.data(), count, DType::kF64, root);
        ASSERT_TRUE(work.Wait().ok()) << work.status();
        EXPECT_EQ(output, expected) << "rank " << r << " root " << root;
      });
    }
  }
}

TEST_P(CollectivesTest, NobodyLeavesABarrierBeforeAllHaveEntered) {
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> entered{0};
    RunRanks(size(), [&](Rank r) {
      if (r == round % size()) LetTimePass(absl::Milliseconds(2), "one rank comes late");
      ++entered;
      ASSERT_TRUE(fleet_.ranks[r]->Barrier().Wait().ok());
      EXPECT_EQ(entered.load(), size());
    });
  }
}

TEST_P(CollectivesTest, ManyIssuedAtOnceAndAwaitedInAnyOrder) {
  constexpr int kWorks = 40;
  RunRanks(size(), [&](Rank r) {
    const RandomStream random(17, "order", static_cast<uint64_t>(r));
    std::vector<std::vector<int64_t>> data(kWorks);
    std::vector<Work> works;
    for (int w = 0; w < kWorks; ++w) {
      data[w].assign(static_cast<size_t>(1 + w * w * 3), r + w);
      works.push_back(fleet_.ranks[r]->AllReduce(data[w].data(), data[w].data(),
                                                 static_cast<int64_t>(data[w].size()), DType::kI64,
                                                 ReduceOp::kSum));
    }
    std::vector<int> order(kWorks);
    std::iota(order.begin(), order.end(), 0);
    for (int i = kWorks - 1; i > 0; --i) {
      std::swap(order[i],
                order[random.Below(static_cast<uint64_t>(i), static_cast<uint64_t>(i + 1))]);
    }
    for (int w : order) {
      ASSERT_TRUE(works[w].Wait().ok()) << works[w].status();
      const int64_t expected = size() * (size() - 1) / 2 + int64_t{size()} * w;
      EXPECT_EQ(data[w], std::vector<int64_t>(data[w].size(), expected));
    }
  });
}

TEST_P(CollectivesTest, SeveralThreadsWaitAtOnce) {
  RunRanks(size(), [&](Rank r) {
    constexpr int kWorks = 12;
    std::vector<std::vector<float>> data(kWorks, std::vector<float>(3000, 1.0f));
    std::vector<Work> works;
    for (auto& values : data) {
      works.push_back(fleet_.ranks[r]->AllReduce(values.data(), values.data(), 3000, DType::kF32,
                                                 ReduceOp::kSum));
    }
    std::vector<std::thread> waiters;
    for (int t = 0; t < 3; ++t) {
      waiters.emplace_back([&, t] {
        for (int w = t; w < kWorks; w += 3) {
          ASSERT_TRUE(works[w].Wait().ok());
          EXPECT_EQ(data[w][2999], static_cast<float>(size()));
        }
      });
    }
    for (std::thread& waiter : waiters) waiter.join();
  });
}

TEST_P(CollectivesTest, RandomMixOfCollectives) {
  constexpr int kRounds = 150;
  RunRanks(size(), [&](Rank r) {
    const RandomStream random(19, "soak");
    for (int i = 0; i < kRounds; ++i) {
      const uint64_t at = static_cast<uint64_t>(i) * 4;
      const auto count = static_cast<int64_t>(random.Below(at, 4000));
      CollectiveOptions options;
      options.algorithm = kAlgorithms[random.Below(at + 1, 3)];
      options.caller_waits = random.Below(at + 2, 2) == 0;
      std::vector<int32_t> values(static_cast<size_t>(count), r + i);
      const Rank root = static_cast<Rank>(random.Below(at + 3, static_cast<uint64_t>(size())));
      Work work;
      int32_t expected = 0;
      if (i % 3 == 0) {
        work = fleet_.ranks[r]->Broadcast(values.data(), values.data(), count, DType::kI32, root,
                                          options);
        expected = root + i;
      } else {
        work = fleet_.ranks[r]->AllReduce(values.data(), values.data(), count, DType::kI32,
                                          ReduceOp::kMax, options);
        expected = size() - 1 + i;
      }
      ASSERT_TRUE(work.Wait().ok()) << work.status();
      ASSERT_EQ(values, std::vector<int32_t>(values.size(), expected)) << "round " << i;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, CollectivesTest,
    testing::Values(Shape{MeshKind::kInProcess, 1}, Shape{MeshKind::kInProcess, 2},
                    Shape{MeshKind::kInProcess, 5}, Shape{MeshKind::kTcp, 2},
                    Shape{MeshKind::kTcp, 3}, Shape{MeshKind::kTcpThreeChannels, 4},
                    Shape{MeshKind::kTcpIpv6, 2}, Shape{MeshKind::kGrpc, 3},
                    Shape{MeshKind::kGrpcThreeChannels, 2}, Shape{MeshKind::kOfi, 2},
                    Shape{MeshKind::kOfiTwoRails, 4}, Shape{MeshKind::kOfiWithoutImmediates, 3},
                    Shape{MeshKind::kHostile, 4}, Shape{MeshKind::kShm, 1},
                    Shape{MeshKind::kShm, 2}, Shape{MeshKind::kShm, 4},
                    Shape{MeshKind::kShmRegistered, 3}),  // It has no window: all by messages.
    [](const auto& info) { return absl::StrCat(NameOf(info.param.kind), info.param.world_size); });

}  // namespace
}  // namespace muster
