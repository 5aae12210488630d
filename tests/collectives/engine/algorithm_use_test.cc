#include "collectives/engine/algorithm_use.h"

#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collectives/engine/communicator_fixture.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(AlgorithmUseTest, RangesGrowAndStayApart) {
  AlgorithmUses uses;
  EXPECT_TRUE(uses.List().empty());
  uses.Note(Collective::kAllReduce, Algorithm::kAuto, Algorithm::kRing, 1 << 20, "large");
  uses.Note(Collective::kAllReduce, Algorithm::kAuto, Algorithm::kDirect, 80, "small");
  uses.Note(Collective::kAllReduce, Algorithm::kAuto, Algorithm::kDirect, 8, "small");
  uses.Note(Collective::kAllReduce, Algorithm::kRing, Algorithm::kRing, 64, "ignored");
  EXPECT_THAT(
      uses.List(),
      ElementsAre(
          AlgorithmUse{Collective::kAllReduce, Algorithm::kDirect, true, 8, 80, "small"},
          AlgorithmUse{Collective::kAllReduce, Algorithm::kRing, false, 64, 64, "asked for"},
          AlgorithmUse{Collective::kAllReduce, Algorithm::kRing, true, 1 << 20, 1 << 20, "large"}));
}

// Ten small and one large all-reduce, automatic, and a barrier by name.
std::vector<AlgorithmUse> UsesOver(MeshKind kind) {
  TestFleet fleet = MakeFleet(kind, 2);
  std::vector<std::thread> threads;
  for (auto& rank : fleet.ranks) {
    threads.emplace_back([&rank] {
      std::vector<float> data(100'000);
      for (const int64_t count : {10, 10, 100'000}) {
        EXPECT_TRUE(rank->AllReduce(data.data(), data.data(), count, DType::kF32, ReduceOp::kSum)
                        .Wait()
                        .ok());
      }
      CollectiveOptions ring;
      ring.algorithm = Algorithm::kRing;
      EXPECT_TRUE(rank->Barrier(ring).Wait().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return fleet.ranks[0]->AlgorithmsInUse();
}

TEST(AlgorithmUseTest, ACommunicatorTellsWhatItTookAndWhy) {
  const std::vector<AlgorithmUse> by_messages = UsesOver(MeshKind::kInProcess);
  ASSERT_EQ(by_messages.size(), 3u);
  EXPECT_EQ(by_messages[0].algorithm, Algorithm::kOneShot);
  EXPECT_TRUE(by_messages[0].automatic);
  EXPECT_EQ(by_messages[0].most_bytes, 40);
  EXPECT_FALSE(by_messages[0].why.empty());
  EXPECT_EQ(by_messages[1].algorithm, Algorithm::kRing);
  EXPECT_EQ(by_messages[1].least_bytes, 400'000);
  EXPECT_EQ(by_messages[2].collective, Collective::kBarrier);
  EXPECT_FALSE(by_messages[2].automatic);

  const std::vector<AlgorithmUse> in_memory = UsesOver(MeshKind::kShm);
  ASSERT_EQ(in_memory.size(), 2u);
  EXPECT_EQ(in_memory[0].algorithm, Algorithm::kWindow);
  EXPECT_EQ(in_memory[0].least_bytes, 40);
  EXPECT_EQ(in_memory[0].most_bytes, 400'000);
  EXPECT_THAT(in_memory[0].why, HasSubstr("share memory"));
  EXPECT_EQ(in_memory[1].algorithm, Algorithm::kRing);
}

}  // namespace
}  // namespace muster
