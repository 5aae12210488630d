// Shapes at the edge: nothing at all, a world of one, memory of any alignment, averages for any
// number of ranks, hosts with different numbers of ranks. Each was a fault in some library.
#include <algorithm>
#include <numeric>

#include "base/float16.h"
#include "tests/collectives/engine/communicator_fixture.h"

namespace muster {
namespace {

struct Shape {
  MeshKind kind;
  int world_size;
};

class EdgeCasesTest : public testing::TestWithParam<Shape> {
 protected:
  EdgeCasesTest() {
    CommunicatorOptions options;
    options.segment_bytes = 512;
    options.spin = absl::ZeroDuration();
    fleet_ = MakeFleet(GetParam().kind, size(), options);
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

// What may be named here: hierarchical needs hosts.
std::vector<Algorithm> AlgorithmsHere(Collective collective) {
  std::vector<Algorithm> algorithms = {Algorithm::kAuto};
  for (const Algorithm algorithm : AlgorithmsOf(collective)) {
    if (algorithm != Algorithm::kHierarchical) algorithms.push_back(algorithm);
  }
  return algorithms;
}

TEST_P(EdgeCasesTest, NothingOfAnythingIsDoneByEveryAlgorithm) {
  const std::vector<int64_t> none(static_cast<size_t>(size()), 0);
  const std::vector<int64_t> none_to_all(static_cast<size_t>(size() * size()), 0);
  using Issue = std::function<Work(Communicator&, const CollectiveOptions&)>;
  const std::vector<std::pair<Collective, Issue>> calls = {
      {Collective::kAllReduce,
       [](Communicator& c, const CollectiveOptions& o) {
         return c.AllReduce(nullptr, nullptr, 0, DType::kF32, ReduceOp::kAverage, o);
       }},
      {Collective::kReduceScatter,
       [&](Communicator& c, const CollectiveOptions& o) {
         return c.ReduceScatter(nullptr, nullptr, none, DType::kF32, ReduceOp::kSum, o);
       }},
      {Collective::kAllGather,
       [&](Communicator& c, const CollectiveOptions& o) {
         return c.AllGather(nullptr, nullptr, none, DType::kF32, o);
       }},
      {Collective::kBroadcast,
       [](Communicator& c, const CollectiveOptions& o) {
         return c.Broadcast(nullptr, nullptr, 0, DType::kF32, 0, o);
       }},
      {Collective::kReduce,
       [](Communicator& c, const CollectiveOptions& o) {
         return c.Reduce(nullptr, nullptr, 0, DType::kF32, ReduceOp::kSum, 0, o);
       }},
      {Collective::kGather,
       [&](Communicator& c, const CollectiveOptions& o) {
         return c.Gather(nullptr, nullptr, none, DType::kF32, 0, o);
       }},
      {Collective::kScatter,
       [&](Communicator& c, const CollectiveOptions& o) {
         return c.Scatter(nullptr, nullptr, none, DType::kF32, 0, o);
       }},
      {Collective::kAllToAll,
       [](Communicator& c, const CollectiveOptions& o) {
         return c.AllToAll(nullptr, nullptr, 0, DType::kF32, o);
       }},
      {Collective::kAllToAll,
       [&](Communicator& c, const CollectiveOptions& o) {
         return c.AllToAllV(nullptr, nullptr, none_to_all, DType::kF32, o);
       }},
  };
  for (const auto& [collective, issue] : calls) {
    for (const Algorithm algorithm : AlgorithmsHere(collective)) {
      RunRanks(size(), [&, &collective = collective, &issue = issue](Rank r) {
        Work work = issue(At(r), By(algorithm));
        ASSERT_TRUE(work.Wait().ok())
            << Name(collective) << " " << Name(algorithm) << ": " << work.status();
      });
    }
  }
  // And it has put nobody out of step.
  RunRanks(size(), [&](Rank r) {
    int64_t one = 1;
    ASSERT_TRUE(At(r).AllReduce(&one, &one, 1, DType::kI64, ReduceOp::kSum).Wait().ok());
    EXPECT_EQ(one, size());
  });
}

TEST_P(EdgeCasesTest, AllToAllWithZeroSplits) {
  const auto square = static_cast<size_t>(size() * size());
  std::vector<std::vector<int64_t>> matrices(4, std::vector<int64_t>(square, 0));
  for (Rank r = 0; r < size(); ++r) {
    const auto at = [this](Rank from, Rank to) { return static_cast<size_t>(from * size() + to); };
    matrices[0][at(size() - 1, r)] = 100 + r;      // only one sends
    matrices[1][at(r, size() / 2)] = 200;          // only one receives
    matrices[2][at(r, r)] = 50;                    // everyone keeps its own
    matrices[3][at(r, (r + 1) % size())] = 7 * r;  // one block each, and rank 0's is empty
  }
  for (const std::vector<int64_t>& matrix : matrices) {
    const auto count_of = [&](Rank from, Rank to) {
      return matrix[static_cast<size_t>(from * size() + to)];
    };
    for (const Algorithm algorithm : AlgorithmsHere(Collective::kAllToAll)) {
      RunRanks(size(), [&](Rank r) {
        std::vector<int32_t> input, expected;
        for (Rank peer = 0; peer < size(); ++peer) {
          for (int64_t i = 0; i < count_of(r, peer); ++i) {
            input.push_back(static_cast<int32_t>(10000 * r + 1000 * peer + i));
          }
          for (int64_t i = 0; i < count_of(peer, r); ++i) {
            expected.push_back(static_cast<int32_t>(10000 * peer + 1000 * r + i));
          }
        }
        std::vector<int32_t> output(expected.size(), -1);
        Work work =
            At(r).AllToAllV(input.data(), output.data(), matrix, DType::kI32, By(algorithm));
        ASSERT_TRUE(work.Wait().ok()) << work.status();
        ASSERT_EQ(output, expected) << Name(algorithm);
      });
    }
  }
}

// A vector at any byte offset, as a view into other data may be.
TEST_P(EdgeCasesTest, MemoryOfAnyAlignment) {
  constexpr int64_t kCount = 777;
  constexpr std::byte kGuard{0xa5};
  for (const DType dtype : kAllDTypes) {
    const size_t bytes = kCount * SizeOf(dtype);
    std::vector<Bytes> inputs;
    for (Rank r = 0; r < size(); ++r) inputs.push_back(RandomElements(dtype, kCount, 29, r));
    const Bytes expected =
        ReduceCanonically(dtype, ReduceOp::kSum, inputs, EvenCounts(kCount, size()));
    for (const Algorithm algorithm : {Algorithm::kAuto, Algorithm::kRing, Algorithm::kDirect}) {
      RunRanks(size(), [&](Rank r) {
        for (const size_t offset : {size_t{1}, size_t{3}, size_t{5} + static_cast<size_t>(r)}) {
          Bytes from(bytes + 16, kGuard), to(bytes + 16, kGuard);
          std::copy(inputs[r].begin(), inputs[r].end(), from.begin() + offset);
          Work work = At(r).AllReduce(from.data() + offset, to.data() + 8 - offset % 8, kCount,
                                      dtype, ReduceOp::kSum, By(algorithm));
          ASSERT_TRUE(work.Wait().ok()) << work.status();
          Bytes framed(bytes + 16, kGuard);
          std::copy(expected.begin(), expected.end(), framed.begin() + 8 - offset % 8);
          ASSERT_EQ(to, framed) << Name(dtype) << " " << Name(algorithm) << " " << offset;
        }
      });
    }
  }
}

// Columns 3 to 9 of a matrix: a view with gaps is a list of tensors, and what lies in the gaps
// stays.
TEST_P(EdgeCasesTest, AViewWithGapsIsAListOfTensors) {
  constexpr int64_t kRows = 25, kColumns = 40, kFirst = 3, kCount = 7;
  RunRanks(size(), [&](Rank r) {
    std::vector<int32_t> matrix(kRows * kColumns);
    std::iota(matrix.begin(), matrix.end(), 1000 * r);
    std::vector<Communicator::Tensor> rows;
    for (int64_t row = 0; row < kRows; ++row) {
      int32_t* const at = matrix.data() + row * kColumns + kFirst;
      rows.push_back({at, at, kCount, DType::kI32});
    }
    ASSERT_TRUE(At(r).AllReduceMany(rows, ReduceOp::kMax).Wait().ok());
    for (int64_t i = 0; i < kRows * kColumns; ++i) {
      const int64_t column = i % kColumns;
      const bool within = column >= kFirst && column < kFirst + kCount;
      ASSERT_EQ(matrix[i], i + 1000 * (within ? size() - 1 : r));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Meshes, EdgeCasesTest,
                         testing::Values(Shape{MeshKind::kInProcess, 1},
                                         Shape{MeshKind::kInProcess, 3}, Shape{MeshKind::kTcp, 1},
                                         Shape{MeshKind::kTcp, 3}, Shape{MeshKind::kGrpc, 3},
                                         Shape{MeshKind::kOfi, 1}, Shape{MeshKind::kOfi, 3},
                                         Shape{MeshKind::kHostile, 4}, Shape{MeshKind::kShm, 1},
                                         Shape{MeshKind::kShm, 3}),
                         [](const auto& info) {
                           return absl::StrCat(NameOf(info.param.kind), info.param.world_size);
                         });

// Small whole numbers, some negative: sums are exact in every type, so the quotient is known.
int64_t WholeNumber(Rank rank, int64_t i) { return (rank * 7 + i * 5) % 13 - 4; }

template <typename T>
void ExpectAverages(TestFleet& fleet, DType dtype, Algorithm algorithm,
                    const std::function<T(int64_t number)>& encode,
                    const std::function<T(int64_t sum, int64_t ranks)>& quotient) {
  const int size = static_cast<int>(fleet.ranks.size());
  constexpr int64_t kCount = 101;
  RunRanks(size, [&](Rank r) {
    std::vector<T> data, expected;
    for (int64_t i = 0; i < kCount; ++i) {
      data.push_back(encode(WholeNumber(r, i)));
      int64_t sum = 0;
      for (Rank q = 0; q < size; ++q) sum += WholeNumber(q, i);
      expected.push_back(quotient(sum, size));
    }
    CollectiveOptions options;
    options.algorithm = algorithm;
    Work work = fleet.ranks[r]->AllReduce(data.data(), data.data(), kCount, dtype,
                                          ReduceOp::kAverage, options);
    ASSERT_TRUE(work.Wait().ok()) << work.status();
    ASSERT_EQ(data, expected) << Name(dtype) << " of " << size << " by " << Name(algorithm);
  });
}

TEST(AveragesTest, OfEveryTypeForAnyNumberOfRanks) {
  for (int size = 1; size <= 11; ++size) {
    TestFleet fleet = MakeFleet(MeshKind::kInProcess, size);
    for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kDirect}) {
      const auto float_of = [](int64_t value) { return static_cast<float>(value); };
      ExpectAverages<float>(fleet, DType::kF32, algorithm, float_of, [](int64_t sum, int64_t n) {
        return static_cast<float>(sum) / static_cast<float>(n);
      });
      ExpectAverages<double>(
          fleet, DType::kF64, algorithm, [](int64_t value) { return static_cast<double>(value); },
          [](int64_t sum, int64_t n) { return static_cast<double>(sum) / static_cast<double>(n); });
      for (const DType dtype : {DType::kF16, DType::kBF16}) {
        const auto narrow = [dtype](float value) {
          return dtype == DType::kF16 ? F32ToF16(value) : F32ToBF16(value);
        };
        ExpectAverages<uint16_t>(
            fleet, dtype, algorithm,
            [&](int64_t value) { return narrow(static_cast<float>(value)); },
            [&](int64_t sum, int64_t n) {
              return narrow(static_cast<float>(sum) / static_cast<float>(n));
            });
      }
      // Toward zero.
      ExpectAverages<int32_t>(
          fleet, DType::kI32, algorithm, [](int64_t value) { return static_cast<int32_t>(value); },
          [](int64_t sum, int64_t n) { return static_cast<int32_t>(sum / n); });
      ExpectAverages<int64_t>(
          fleet, DType::kI64, algorithm, [](int64_t value) { return value; },
          [](int64_t sum, int64_t n) { return sum / n; });
      // The sum wraps before it is divided.
      ExpectAverages<uint8_t>(
          fleet, DType::kU8, algorithm, [](int64_t value) { return static_cast<uint8_t>(value); },
          [](int64_t sum, int64_t n) {
            return static_cast<uint8_t>(static_cast<uint8_t>(sum) / n);
          });
    }
  }
}

TEST(HostsTest, SevenAndEightRanksOnTwoHostsInAnyOrder) {
  constexpr int kSize = 15;
  for (const bool interleaved : {false, true}) {
    CommunicatorOptions options;
    options.segment_bytes = 256;
    for (Rank r = 0; r < kSize; ++r) options.hosts.push_back(interleaved ? 1 - r % 2 : r / 7 > 0);
    ASSERT_EQ(std::count(options.hosts.begin(), options.hosts.end(), 1), 8);
    TestFleet fleet = MakeFleet(MeshKind::kInProcess, kSize, options);
    for (const int64_t count : {0, 1, 6, 7, 8, 14, 15, 16, 55, 56, 57, 5003}) {
      std::vector<std::vector<double>> results(kSize);
      RunRanks(kSize, [&](Rank r) {
        std::vector<double>& data = results[r];
        for (int64_t i = 0; i < count; ++i) data.push_back(static_cast<double>(r * i + r));
        Work work = fleet.ranks[r]->AllReduce(data.data(), data.data(), count, DType::kF64,
                                              ReduceOp::kSum, By(Algorithm::kHierarchical));
        ASSERT_TRUE(work.Wait().ok()) << work.status();
      });
      for (Rank r = 0; r < kSize; ++r) {
        for (int64_t i = 0; i < count; ++i) {
          ASSERT_EQ(results[r][i], static_cast<double>((i + 1) * kSize * (kSize - 1) / 2));
        }
      }
    }
  }
}

}  // namespace
}  // namespace muster
