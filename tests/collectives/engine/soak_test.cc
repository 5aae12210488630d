// Thousands of random collectives, one after the other and overlapping, on more ranks than a table
// or a bit mask of some implementation had room for. Every element of every result is checked
// against a sum over all ranks. The long soak is for an idle machine:
// --gtest_also_run_disabled_tests.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_format.h"
#include "tests/collectives/engine/communicator_fixture.h"

namespace muster {
namespace {

int32_t ValueOf(uint64_t round, Rank rank, int64_t i) {
  uint64_t bits = (round * 131 + static_cast<uint64_t>(rank)) * 1'000'003 +
                  static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u;
  bits = (bits ^ (bits >> 31)) * 0xbf58476d1ce4e5b9u;
  return static_cast<int32_t>(bits >> 44);  // 20 bits: sums do not wrap.
}

// One round: the same on all ranks.
struct Plan {
  uint64_t round = 0;
  Collective collective = Collective::kAllReduce;
  Algorithm algorithm = Algorithm::kAuto;
  Rank root = 0;
  int64_t count = 0;            // of the whole vector
  std::vector<int64_t> counts;  // of each rank's part
};

Plan MakePlan(uint64_t seed, uint64_t round, int size) {
  constexpr Collective kCollectives[] = {
      Collective::kAllReduce, Collective::kAllReduce, Collective::kReduceScatter,
      Collective::kAllGather, Collective::kBroadcast, Collective::kReduce,
      Collective::kGather,    Collective::kScatter,   Collective::kAllToAll};
  const RandomStream random(seed, "soak", round);
  Plan plan;
  plan.round = round;
  plan.collective = kCollectives[random.Below(0, std::size(kCollectives))];
  const auto algorithms = AlgorithmsOf(plan.collective);
  const uint64_t choice = random.Below(1, algorithms.size() + 1);
  if (choice < algorithms.size() && algorithms[choice] != Algorithm::kHierarchical) {
    plan.algorithm = algorithms[choice];
  }
  plan.root = static_cast<Rank>(random.Below(2, static_cast<uint64_t>(size)));
  const uint64_t most = random.Below(3, 10) == 0 ? 4000 : 100;
  plan.count = static_cast<int64_t>(random.Below(4, most));
  plan.counts = EvenCounts(plan.count, size);
  if (random.Below(5, 2) == 0)
    std::rotate(plan.counts.begin(), plan.counts.begin() + 1, plan.counts.end());
  return plan;
}

int32_t SumOf(const Plan& plan, int size, int64_t i) {
  int32_t sum = 0;
  for (Rank r = 0; r < size; ++r) sum += ValueOf(plan.round, r, i);
  return sum;
}

// One call of one rank, its memory and what must come out.
struct Call {
  std::vector<int32_t> input, output, expected;
  Work work;
};

void Issue(Communicator& communicator, const Plan& plan, Call& call) {
  const int size = communicator.world_size();
  const Rank rank = communicator.rank();
  const bool root = rank == plan.root;
  const int64_t mine = plan.counts[rank];
  const int64_t before =
      std::accumulate(plan.counts.begin(), plan.counts.begin() + rank, int64_t{0});
  const auto give = [&](int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; ++i) call.input.push_back(ValueOf(plan.round, rank, first + i));
  };
  const auto expect = [&](Rank from, int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      call.expected.push_back(from < 0 ? SumOf(plan, size, first + i)
                                       : ValueOf(plan.round, from, first + i));
    }
  };
  CollectiveOptions options;
  options.algorithm = plan.algorithm;
  options.timeout = absl::Seconds(100);
  const auto run = [&](auto issue) {
    call.output.assign(call.expected.size(), -1);
    call.work = issue(call.input.data(), call.output.data());
  };
  constexpr DType kType = DType::kI32;
  constexpr ReduceOp kSum = ReduceOp::kSum;
  switch (plan.collective) {
    case Collective::kAllReduce:
      give(0, plan.count);
      expect(-1, 0, plan.count);
      return run([&](auto* in, auto* out) {
        return communicator.AllReduce(in, out, plan.count, kType, kSum, options);
      });
    case Collective::kReduceScatter:
      give(0, plan.count);
      expect(-1, before, mine);
      return run([&](auto* in, auto* out) {
        return communicator.ReduceScatter(in, out, plan.counts, kType, kSum, options);
      });
    case Collective::kAllGather:
    case Collective::kGather:
      give(0, mine);
      for (Rank r = 0; r < size && (root || plan.collective == Collective::kAllGather); ++r) {
        expect(r, 0, plan.counts[r]);
      }
      return run([&](auto* in, auto* out) {
        return plan.collective == Collective::kGather
                   ? communicator.Gather(in, out, plan.counts, kType, plan.root, options)
                   : communicator.AllGather(in, out, plan.counts, kType, options);
      });
    case Collective::kBroadcast:
      if (root) give(0, plan.count);
      expect(plan.root, 0, plan.count);
      return run([&](auto* in, auto* out) {
        return communicator.Broadcast(in, out, plan.count, kType, plan.root, options);
      });
    case Collective::kReduce:
      give(0, plan.count);
      if (root) expect(-1, 0, plan.count);
      return run([&](auto* in, auto* out) {
        return communicator.Reduce(in, out, plan.count, kType, kSum, plan.root, options);
      });
    case Collective::kScatter:
      if (root) give(0, plan.count);
      expect(plan.root, before, mine);
      return run([&](auto* in, auto* out) {
        return communicator.Scatter(in, out, plan.counts, kType, plan.root, options);
      });
    case Collective::kAllToAll: {
      const int64_t block = plan.count % 19;
      give(0, block * size);
      for (Rank r = 0; r < size; ++r) expect(r, block * rank, block);
      return run([&](auto* in, auto* out) {
        return communicator.AllToAll(in, out, block, kType, options);
      });
    }
    default:
      FAIL() << "not in the soak";
  }
}

void Soak(MeshKind kind, int size, uint64_t rounds, uint64_t seed) {
  CommunicatorOptions options;
  options.segment_bytes = 1024;
  options.window_small_limit_bytes = 1024;
  TestFleet fleet = MakeFleet(kind, size, options);
  RunRanks(size, [&](Rank r) {
    // Some are under way at a time.
    constexpr size_t kWindow = 4;
    std::vector<std::pair<Plan, std::unique_ptr<Call>>> pending;
    const auto finish_first = [&] {
      auto& [plan, call] = pending.front();
      const std::string trace = absl::StrFormat(
          "seed %d round %d: %s by %s of %d elements, root %d, on rank %d", seed, plan.round,
          Name(plan.collective), Name(plan.algorithm), plan.count, plan.root, r);
      ASSERT_TRUE(call->work.Wait().ok()) << trace << ": " << call->work.status();
      ASSERT_EQ(call->output, call->expected) << trace;
      pending.erase(pending.begin());
    };
    for (uint64_t round = 0; round < rounds; ++round) {
      pending.emplace_back(MakePlan(seed, round, size), std::make_unique<Call>());
      ASSERT_NO_FATAL_FAILURE(Issue(*fleet.ranks[r], pending.back().first, *pending.back().second));
      if (pending.size() > kWindow) {
        ASSERT_NO_FATAL_FAILURE(finish_first());
      }
    }
    while (!pending.empty()) {
      ASSERT_NO_FATAL_FAILURE(finish_first());
    }
  });
}

TEST(SoakTest, MoreThanTwentyRanks) { Soak(MeshKind::kInProcess, 21, 1500, 1); }
TEST(SoakTest, ThousandsOfCollectivesInProcess) { Soak(MeshKind::kInProcess, 3, 10'000, 2); }
TEST(SoakTest, ThousandsOfCollectivesInSharedMemory) { Soak(MeshKind::kShm, 3, 8000, 3); }
TEST(SoakTest, ThousandsOfCollectivesOverTcp) { Soak(MeshKind::kTcp, 3, 5000, 4); }
TEST(SoakTest, AThousandCollectivesOverGrpc) { Soak(MeshKind::kGrpc, 3, 1000, 8); }
TEST(SoakTest, ThousandsOfCollectivesOverLibfabric) { Soak(MeshKind::kOfi, 3, 3000, 5); }
TEST(SoakTest, TwentyRanksOverTcp) { Soak(MeshKind::kTcp, 20, 60, 6); }
TEST(SoakTest, TwentyRanksInSharedMemory) { Soak(MeshKind::kShm, 20, 200, 7); }

TEST(SoakTest, DISABLED_LongOnManyRanks) {
  for (uint64_t seed = 100; seed < 103; ++seed) Soak(MeshKind::kInProcess, 33, 10'000, seed);
}

}  // namespace
}  // namespace muster
