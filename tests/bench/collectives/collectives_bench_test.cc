// What bench-collectives counts, divides by and holds to be right.
#include <algorithm>
#include <cstdio>
#include <thread>

#include "bench/collectives/muster_ranks.h"
#include "bench/collectives/reference.h"
#include "bench/collectives/start_groups.h"
#include "bench/collectives/table.h"
#include "bench/collectives/trial.h"
#include "collectives/transport/in_process_transport.h"

namespace muster::bench {
namespace {

using testing::HasSubstr;

constexpr Kind kKinds[] = {
    Kind::kAllReduce, Kind::kReduceScatter, Kind::kAllGather, Kind::kBroadcast,   Kind::kReduce,
    Kind::kGather,    Kind::kScatter,       Kind::kAllToAll,  Kind::kSendReceive, Kind::kBarrier};
constexpr ElementType kTypes[] = {ElementType::kF32, ElementType::kF64, ElementType::kF16,
                                  ElementType::kBF16, ElementType::kI32};
constexpr Redop kRedops[] = {Redop::kSum, Redop::kAverage, Redop::kMin, Redop::kMax};

TEST(AlgorithmNamesTest, AreThoseOfWhatIsMeasured) {
  const auto names = [](Kind kind, ElementType type) {
    return AlgorithmNames({kind}, {type}, /*hosts=*/1);
  };
  EXPECT_EQ(names(Kind::kAllReduce, ElementType::kF32).front(), "auto");
  EXPECT_THAT(names(Kind::kAllReduce, ElementType::kF32), testing::Contains("double-tree"));
  EXPECT_THAT(names(Kind::kAllReduce, ElementType::kBF16),
              testing::Not(testing::Contains("double-tree")));
  EXPECT_THAT(names(Kind::kAllReduce, ElementType::kF32), testing::Not(testing::Contains("bruck")));
  EXPECT_THAT(names(Kind::kAllGather, ElementType::kF32), testing::Contains("bruck"));
  EXPECT_THAT(
      AlgorithmNames({Kind::kAllReduce, Kind::kAllGather}, {ElementType::kF32}, /*hosts=*/1),
      testing::Contains("bruck"));
}

TEST(AlgorithmNamesTest, HierarchicalNeedsHosts) {
  for (const int hosts : {1, 2}) {
    const auto names = AlgorithmNames({Kind::kAllReduce}, {ElementType::kF32}, hosts);
    EXPECT_EQ(std::count(names.begin(), names.end(), "hierarchical"), hosts - 1);
  }
}

// nccl-tests, doc/PERFORMANCE.md.
TEST(TrialTest, BusBandwidthIsThatOfNcclTests) {
  EXPECT_DOUBLE_EQ(BusFactor(Kind::kAllReduce, 4), 1.5);
  for (const Kind kind :
       {Kind::kReduceScatter, Kind::kAllGather, Kind::kGather, Kind::kScatter, Kind::kAllToAll}) {
    EXPECT_DOUBLE_EQ(BusFactor(kind, 4), 0.75) << Name(kind);
  }
  for (const Kind kind : {Kind::kBroadcast, Kind::kReduce, Kind::kSendReceive}) {
    EXPECT_DOUBLE_EQ(BusFactor(kind, 4), 1) << Name(kind);
  }
}

TEST(TrialTest, SizesAreThoseOfTheLargerBuffer) {
  for (const Kind kind : kKinds) {
    Trial trial;
    trial.kind = kind;
    trial.root = 2;
    trial.count = CountOf(kind, ElementType::kF32, 3, 1200);
    uint64_t largest = 0;
    for (int rank = 0; rank < 3; ++rank) {
      largest = std::max({largest, InputCount(trial, rank, 3), OutputCount(trial, rank, 3)});
      EXPECT_LE(InputOffsetInPlace(trial, rank) + InputCount(trial, rank, 3), WholeCount(trial, 3));
      EXPECT_LE(OutputOffsetInPlace(trial, rank) + OutputCount(trial, rank, 3),
                WholeCount(trial, 3));
    }
    EXPECT_EQ(largest, kind == Kind::kBarrier ? 0u : 300u) << Name(kind);
    EXPECT_EQ(WholeCount(trial, 3), largest);
  }
  EXPECT_EQ(CountOf(Kind::kAllGather, ElementType::kF64, 64, 8), 1u);
}

TEST(TrialTest, TextAndBack) {
  Trial trial;
  trial.kind = Kind::kReduceScatter;
  trial.type = ElementType::kBF16;
  trial.redop = Redop::kAverage;
  trial.in_place = true;
  trial.root = 3;
  trial.iterations = 17;
  trial.count = uint64_t{1} << 40;
  std::snprintf(trial.variant, sizeof(trial.variant), "halving-doubling");
  const std::string line = Format(trial);
  const std::optional<Trial> parsed = ParseTrial(line);
  ASSERT_TRUE(parsed.has_value()) << line;
  EXPECT_EQ(Format(*parsed), line);
  EXPECT_EQ(line, "reduce-scatter bf16 average 1099511627776 3 1 17 halving-doubling");
  for (const char* none : {"", "all-reduce", "all-reduce f32 sum 4 0 0 0 auto",
                           "all-reduce f33 sum 4 0 0 1 auto", "all-reduce f32 sum x 0 0 1 auto"}) {
    EXPECT_FALSE(ParseTrial(none).has_value()) << none;
  }
}

// Passes everything on, and then spoils one element of what comes out on one rank.
class Spoiler : public BenchRank {
 public:
  Spoiler(std::unique_ptr<BenchRank> real, bool spoils, int rank, int ranks)
      : real_(std::move(real)), spoils_(spoils), rank_(rank), ranks_(ranks) {}
  bool Supports(const Trial& trial) const override { return real_->Supports(trial); }
  void Run(const Trial& trial, const void* input, void* output) override {
    real_->Run(trial, input, output);
    if (!spoils_ || output == nullptr) return;
    const size_t last = OutputCount(trial, rank_, ranks_) - 1;
    static_cast<std::byte*>(output)[last * SizeOf(trial.type)] ^= std::byte{1};
  }

 private:
  const std::unique_ptr<BenchRank> real_;
  const bool spoils_;
  const int rank_;
  const int ranks_;
};

// Wrong values on all ranks after `trial`; rank `spoiled` spoils its output, -1: none does.
int64_t WrongAfter(const Trial& trial, int ranks, int spoiled) {
  auto mesh = MakeInProcessMesh(ranks);
  std::vector<int64_t> wrong(static_cast<size_t>(ranks), 0);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Spoiler bench_rank(MakeMusterRank(*Communicator::Create(std::move(mesh[rank])), nullptr, {}),
                         rank == spoiled, rank, ranks);
      TrialBuffers buffers;
      EXPECT_GE(TimeTrial(bench_rank, buffers, rank, ranks, trial, &wrong[rank]), 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  int64_t all = 0;
  for (const int64_t count : wrong) all += count;
  return all;
}

TEST(ReferenceTest, RightResultsAreRightAndAWrongElementIsSeen) {
  constexpr int kRanks = 3;
  for (const Kind kind : kKinds) {
    for (const ElementType type : kTypes) {
      for (const Redop redop : kRedops) {
        if (!Reduces(kind) && redop != Redop::kSum) continue;
        for (const bool in_place : {false, true}) {
          if (in_place && !WorksInPlace(kind)) continue;
          Trial trial;
          trial.kind = kind;
          trial.type = type;
          trial.redop = redop;
          trial.root = 1;
          trial.in_place = in_place;
          trial.iterations = 2;
          trial.count = CountOf(kind, type, kRanks, 6000 * SizeOf(type));
          EXPECT_EQ(WrongAfter(trial, kRanks, -1), 0) << Format(trial);
          if (kind == Kind::kBarrier) continue;
          EXPECT_GT(WrongAfter(trial, kRanks, /*spoiled=*/1), 0) << Format(trial);
        }
      }
    }
  }
}

TEST(TableTest, ALineHasTheColumnsOfNcclTests) {
  Row row = {"muster", "shm", "auto", 4, {}, Measurement{1000, 0}, std::nullopt};
  row.trial.kind = Kind::kReduce;
  row.trial.root = 2;
  row.trial.count = 1 << 20;
  const std::string line = Line(row);
  EXPECT_THAT(line,
              HasSubstr(" 4194304      1048576   f32     sum    2     1000.0    4.194    4.194"));
  EXPECT_THAT(line, HasSubstr("N/A"));
  const nlohmann::json json = ToJson(row);
  EXPECT_EQ(json.at("collective"), "reduce");
  EXPECT_EQ(json.at("bytes"), 4194304);
  EXPECT_EQ(json.at("errors"), 0);
  EXPECT_DOUBLE_EQ(json.at("busbw_gbps").get<double>(), 4.194304);
  EXPECT_FALSE(json.contains("in_place_time_us"));
  row.in_place = Measurement{500, 7};
  EXPECT_EQ(ToJson(row).at("in_place_errors"), 7);
}

}  // namespace
}  // namespace muster::bench
