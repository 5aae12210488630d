// The engine over a transport that does all the contract allows, for hundreds of seeds.
#include <thread>

#include "base/random.h"
#include "collectives/transport/culprit.h"
#include "tests/collectives/engine/communicator_fixture.h"
#include "tests/collectives/transport/hostile_transport.h"
#include "tests/wait_until.h"

namespace muster {
namespace {

constexpr uint64_t kSeeds = 300;

struct HostileFleet {
  HostileMesh mesh;
  std::vector<std::unique_ptr<Communicator>> ranks;
};

HostileFleet MakeHostileFleet(int world_size, uint64_t seed) {
  HostileFleet fleet;
  TransportLimits limits;
  limits.eager_bytes = 512;  // Early and awaited messages in every seed.
  limits.unexpected_bytes = 4096;
  fleet.mesh = MakeHostileMesh(world_size, seed, limits);
  CommunicatorOptions options;
  options.segment_bytes = 1024;
  options.spin = absl::ZeroDuration();
  options.default_timeout = absl::Seconds(60);
  for (auto& end : fleet.mesh.ends) {
    auto communicator = Communicator::Create(std::move(end), options);
    EXPECT_TRUE(communicator.ok()) << communicator.status();
    fleet.ranks.push_back(*std::move(communicator));
  }
  return fleet;
}

TEST(HostileEngineTest, ResultsAreTheOraclesForEverySeed) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const RandomStream random(seed, "hostile-engine");
    const int size = 2 + static_cast<int>(random.Below(0, 4));
    HostileFleet fleet = MakeHostileFleet(size, seed);
    const auto count = static_cast<int64_t>(random.Below(1, 3000));
    const DType dtype = random.Below(2, 2) == 0 ? DType::kF32 : DType::kBF16;
    const Rank root = static_cast<Rank>(random.Below(3, static_cast<uint64_t>(size)));
    std::vector<Bytes> inputs;
    for (Rank r = 0; r < size; ++r) inputs.push_back(RandomElements(dtype, count, seed, r));
    const std::vector<int64_t> parts = EvenCounts(count, size);
    const Bytes sum = ReduceCanonically(dtype, ReduceOp::kSum, inputs, parts);
    RunRanks(size, [&](Rank r) {
      Communicator& rank = *fleet.ranks[r];
      Bytes by_ring(sum.size()), directly(sum.size()), from_root(sum.size());
      CollectiveOptions ring, direct;
      ring.algorithm = Algorithm::kRing;
      direct.algorithm = Algorithm::kDirect;
      std::vector<Work> works;
      works.push_back(
          rank.AllReduce(inputs[r].data(), by_ring.data(), count, dtype, ReduceOp::kSum, ring));
      works.push_back(
          rank.AllReduce(inputs[r].data(), directly.data(), count, dtype, ReduceOp::kSum, direct));
      works.push_back(rank.Barrier());
      works.push_back(rank.Broadcast(inputs[r].data(), from_root.data(), count, dtype, root));
      for (Work& work : works) ASSERT_TRUE(work.Wait().ok()) << work.status();
      EXPECT_EQ(by_ring, sum);
      EXPECT_EQ(directly, sum);
      EXPECT_EQ(from_root, inputs[root]);
    });
    if (HasFailure()) return;
  }
}

TEST(HostileEngineTest, AKilledRankFailsAllOthersAndIsNamedForEverySeed) {
  for (uint64_t seed = 0; seed < kSeeds / 3; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const RandomStream random(seed, "hostile-kill");
    const int size = 2 + static_cast<int>(random.Below(0, 4));
    HostileFleet fleet = MakeHostileFleet(size, seed);
    const Rank victim = static_cast<Rank>(random.Below(1, static_cast<uint64_t>(size)));
    const uint64_t last_round = random.Below(2, 5);
    RunRanks(size, [&](Rank r) {
      std::vector<float> data(700, 1.0f);
      for (uint64_t round = 0;; ++round) {
        if (r == victim && round == last_round) KillRank(*fleet.mesh.hub, victim);
        const absl::Status status =
            fleet.ranks[r]
                ->AllReduce(data.data(), data.data(), 700, DType::kF32, ReduceOp::kMax)
                .Wait();
        if (status.ok()) {
          ASSERT_LE(round, last_round);
          continue;
        }
        EXPECT_TRUE(absl::IsUnavailable(status)) << status;
        EXPECT_EQ(CulpritOf(status), std::optional<Rank>(victim)) << status;
        return;
      }
    });
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace muster
