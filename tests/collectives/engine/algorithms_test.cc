// Every algorithm of every collective over real transports, against plain oracles: sums against a
// naive one in f64, what only moves bit for bit. Parts are uneven and some are empty.
#include <cmath>
#include <numeric>

#include "absl/strings/str_format.h"
#include "collectives/schedule/schedule_request.h"
#include "tests/collectives/engine/communicator_fixture.h"

namespace muster {
namespace {

struct Shape {
  MeshKind kind;
  int world_size;
};

class AlgorithmsTest : public testing::TestWithParam<Shape> {
 protected:
  AlgorithmsTest() {
    CommunicatorOptions options;
    options.segment_bytes = 512;  // Many segments at small sizes.
    options.spin = absl::ZeroDuration();
    for (Rank r = 0; r < size(); ++r) options.hosts.push_back(r < (size() + 1) / 2 ? 0 : 1);
    fleet_ = MakeFleet(GetParam().kind, GetParam().world_size, options);
  }
  int size() const { return GetParam().world_size; }
  Communicator& At(Rank r) { return *fleet_.ranks[r]; }

  TestFleet fleet_;
};

CollectiveOptions By(Algorithm algorithm) {
  CollectiveOptions options;
  options.algorithm = algorithm;
  return options;
}

// Numbers that differ by rank and element, with fractions that f32 sums round.
std::vector<float> Values(Rank rank, int64_t count) {
  const RandomStream random(23, "algorithms-test", static_cast<uint64_t>(rank));
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    values[static_cast<size_t>(i)] = 2.0f * random.UniformFloat(static_cast<uint64_t>(i)) - 1.0f;
  }
  return values;
}

std::vector<double> NaiveSum(int size, int64_t count) {
  std::vector<double> sum(static_cast<size_t>(count));
  for (Rank r = 0; r < size; ++r) {
    const std::vector<float> values = Values(r, count);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(values[i]);
  }
  return sum;
}

void ExpectNear(const std::vector<float>& actual, const std::vector<double>& expected,
                double divisor) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(actual[i]), expected[i] / divisor, 1e-5) << "element " << i;
  }
}

std::vector<int64_t> UnevenCounts(int size) {
  std::vector<int64_t> counts;
  for (int r = 0; r < size; ++r) counts.push_back(r == 1 ? 0 : 301 * r + 1);
  return counts;
}

TEST_P(AlgorithmsTest, AllReduceIsTheSumAndTheSameBitsOnAllRanks) {
  for (const Algorithm algorithm : AlgorithmsOf(Collective::kAllReduce)) {
    for (const int64_t count : {0, 1, 6, 4099}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
        for (const bool in_place : {false, true}) {
          SCOPED_TRACE(absl::StrFormat("%s %d %s %d", Name(algorithm), count, Name(op), in_place));
          std::vector<std::vector<float>> outputs(size());
          RunRanks(size(), [&](Rank r) {
            const std::vector<float> input = Values(r, count);
            outputs[r] = in_place ? input : std::vector<float>(input.size());
            Work work = At(r).AllReduce(in_place ? outputs[r].data() : input.data(),
                                        outputs[r].data(), count, DType::kF32, op, By(algorithm));
            ASSERT_TRUE(work.Wait().ok()) << work.status();
          });
          ExpectNear(outputs[0], NaiveSum(size(), count), op == ReduceOp::kAverage ? size() : 1);
          for (Rank r = 1; r < size(); ++r) ASSERT_EQ(outputs[r], outputs[0]) << "rank " << r;
        }
      }
    }
  }
}

TEST_P(AlgorithmsTest, ReduceReachesTheRootAlone) {
  for (const Algorithm algorithm : AlgorithmsOf(Collective::kReduce)) {
    for (const int64_t count : {0, 1, 4099}) {
      for (Rank root = 0; root < size(); ++root) {
        SCOPED_TRACE(absl::StrFormat("%s %d root %d", Name(algorithm), count, root));
        RunRanks(size(), [&](Rank r) {
          std::vector<float> values = Values(r, count);
          const std::vector<float> before = values;
          // The root works in place where its number is odd.
          std::vector<float> apart(values.size());
          float* const output = r != root ? nullptr : root % 2 == 1 ? values.data() : apart.data();
          Work work = At(r).Reduce(values.data(), output, count, DType::kF32, ReduceOp::kSum, root,
                                   By(algorithm));
          ASSERT_TRUE(work.Wait().ok()) << work.status();
          if (r == root) {
            ExpectNear(root % 2 == 1 ? values : apart, NaiveSum(size(), count), 1);
          } else {
            ASSERT_EQ(values, before);
          }
        });
      }
    }
  }
}

TEST_P(AlgorithmsTest, UnevenReduceScatterAndAllGather) {
  const std::vector<int64_t> counts = UnevenCounts(size());
  const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  for (const Algorithm scatter : AlgorithmsOf(Collective::kReduceScatter)) {
    for (const Algorithm gather : AlgorithmsOf(Collective::kAllGather)) {
      SCOPED_TRACE(absl::StrFormat("%s %s", Name(scatter), Name(gather)));
      RunRanks(size(), [&](Rank r) {
        const std::vector<float> input = Values(r, total);
        std::vector<float> part(static_cast<size_t>(counts[r])), all(input.size());
        Work first = At(r).ReduceScatter(input.data(), part.data(), counts, DType::kF32,
                                         ReduceOp::kSum, By(scatter));
        ASSERT_TRUE(first.Wait().ok()) << first.status();
        Work second = At(r).AllGather(part.data(), all.data(), counts, DType::kF32, By(gather));
        ASSERT_TRUE(second.Wait().ok()) << second.status();
        ExpectNear(all, NaiveSum(size(), total), 1);
      });
    }
  }
}

TEST_P(AlgorithmsTest, BroadcastGatherAndScatterMoveBitForBit) {
  const std::vector<int64_t> counts = UnevenCounts(size());
  const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const Bytes whole = RandomElements(DType::kF64, total, 3, 0);
  std::vector<size_t> offsets(1, 0);
  for (const int64_t count : counts) {
    offsets.push_back(offsets.back() + static_cast<size_t>(count) * sizeof(double));
  }
  for (Rank root = 0; root < size(); ++root) {
    SCOPED_TRACE(root);
    RunRanks(size(), [&](Rank r) {
      const Bytes part(whole.begin() + static_cast<int64_t>(offsets[r]),
                       whole.begin() + static_cast<int64_t>(offsets[r + 1]));
      for (const Algorithm algorithm : AlgorithmsOf(Collective::kBroadcast)) {
        Bytes output(whole.size());
        Work work = At(r).Broadcast(r == root ? whole.data() : nullptr, output.data(), total,
                                    DType::kF64, root, By(algorithm));
        ASSERT_TRUE(work.Wait().ok()) << work.status();
        ASSERT_EQ(output, whole) << Name(algorithm);
      }
      for (const Algorithm algorithm : AlgorithmsOf(Collective::kGather)) {
        Bytes output(r == root ? whole.size() : 0);
        Work work =
            At(r).Gather(part.data(), output.data(), counts, DType::kF64, root, By(algorithm));
        ASSERT_TRUE(work.Wait().ok()) << work.status();
        ASSERT_EQ(output, r == root ? whole : Bytes()) << Name(algorithm);
      }
      for (const Algorithm algorithm : AlgorithmsOf(Collective::kScatter)) {
        Bytes output(part.size());
        Work work = At(r).Scatter(r == root ? whole.data() : nullptr, output.data(), counts,
                                  DType::kF64, root, By(algorithm));
        ASSERT_TRUE(work.Wait().ok()) << work.status();
        ASSERT_EQ(output, part) << Name(algorithm);
      }
    });
  }
}

// The element that goes from a to b at place i.
int64_t Mark(Rank from, Rank to, int64_t i) { return from * 1'000'000 + to * 10'000 + i; }

TEST_P(AlgorithmsTest, AllToAllOfEvenUnevenAndEmptyBlocks) {
  for (const Algorithm algorithm : AlgorithmsOf(Collective::kAllToAll)) {
    for (const bool even : {true, false}) {
      std::vector<int64_t> matrix(static_cast<size_t>(size() * size()), 37);
      for (size_t i = 0; !even && i < matrix.size(); ++i) {
        matrix[i] = static_cast<int64_t>(i * i * 29 % 5) * 40;  // A fifth and more are empty.
      }
      const auto count_of = [&](Rank from, Rank to) {
        return matrix[static_cast<size_t>(from * size() + to)];
      };
      RunRanks(size(), [&](Rank r) {
        std::vector<int64_t> input, expected;
        for (Rank peer = 0; peer < size(); ++peer) {
          for (int64_t i = 0; i < count_of(r, peer); ++i) input.push_back(Mark(r, peer, i));
          for (int64_t i = 0; i < count_of(peer, r); ++i) expected.push_back(Mark(peer, r, i));
        }
        std::vector<int64_t> output(expected.size());
        Work work =
            even ? At(r).AllToAll(input.data(), output.data(), 37, DType::kI64, By(algorithm))
                 : At(r).AllToAllV(input.data(), output.data(), matrix, DType::kI64, By(algorithm));
        ASSERT_TRUE(work.Wait().ok()) << work.status();
        ASSERT_EQ(output, expected) << Name(algorithm) << even;
      });
    }
  }
}

TEST_P(AlgorithmsTest, ManyTensorsInOneLaunch) {
  RunRanks(size(), [&](Rank r) {
    std::vector<std::vector<int32_t>> data;
    std::vector<Communicator::Tensor> tensors;
    for (int t = 0; t < 30; ++t) data.emplace_back(static_cast<size_t>(t * t), r + t);
    for (auto& values : data) {
      tensors.push_back(
          {values.data(), values.data(), static_cast<int64_t>(values.size()), DType::kI32});
    }
    ASSERT_TRUE(At(r).AllReduceMany(tensors, ReduceOp::kSum).Wait().ok());
    for (int t = 0; t < 30; ++t) {
      const int32_t sum = size() * (size() - 1) / 2 + size() * t;
      ASSERT_EQ(data[t], std::vector<int32_t>(data[t].size(), sum));
    }
    EXPECT_TRUE(At(r).AllReduceMany({}, ReduceOp::kSum).Done());
  });
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, AlgorithmsTest,
    testing::Values(Shape{MeshKind::kInProcess, 1}, Shape{MeshKind::kInProcess, 2},
                    Shape{MeshKind::kInProcess, 3}, Shape{MeshKind::kInProcess, 7},
                    Shape{MeshKind::kInProcess, 8}, Shape{MeshKind::kTcp, 4},
                    Shape{MeshKind::kTcp, 5}, Shape{MeshKind::kGrpc, 4}, Shape{MeshKind::kShm, 5},
                    Shape{MeshKind::kShmRegistered, 4}, Shape{MeshKind::kShmStaged, 3},
                    Shape{MeshKind::kTwoLevel, 5}),
    [](const auto& info) {
      return NameOf(info.param.kind) + std::to_string(info.param.world_size);
    });

}  // namespace
}  // namespace muster
