#include "worker/runtime/residual_handover.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collectives/engine/communicator_fixture.h"

namespace muster {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

// Workers 1 to n; those listed leave. One parameter server behind them, which leaves, too.
View ViewOf(int workers, const std::vector<uint64_t>& leaving) {
  View view;
  view.members.resize(static_cast<size_t>(workers) + 1);
  for (size_t i = 0; i < view.members.size(); ++i) view.members[i].incarnation = Incarnation{i + 1};
  view.members.back().role = MemberRole::kParameterServer;
  view.leaving.push_back(view.members.back().incarnation);
  for (const uint64_t each : leaving) view.leaving.push_back(Incarnation{each});
  return view;
}

TEST(ResidualHandoverTest, WhoLeavesGivesToWhoStays) {
  EXPECT_THAT(ResidualHandovers(ViewOf(3, {})), IsEmpty());
  EXPECT_THAT(ResidualHandovers(ViewOf(3, {2})), ElementsAre(Pair(1, 0)));
  EXPECT_THAT(ResidualHandovers(ViewOf(5, {5, 1, 3})),
              ElementsAre(Pair(0, 1), Pair(2, 3), Pair(4, 1)));
  EXPECT_THAT(ResidualHandovers(ViewOf(2, {1, 2})), IsEmpty());  // nobody stays
}

TEST(ResidualHandoverTest, BringsEachToOneWorker) {
  constexpr int64_t kCount = 1000;
  const View view = ViewOf(4, {1, 3, 4});
  TestFleet fleet = MakeFleet(MeshKind::kInProcess, 5);
  RunRanks(5, [&](Rank rank) {
    // Worker 3 has carried nothing yet.
    const std::vector<float> carried(rank == 2 || rank == 4 ? 0 : kCount,
                                     static_cast<float>(rank + 1));
    std::optional<Rank> culprit;
    const auto given =
        HandOverResiduals(*fleet.ranks[rank], view, carried, kCount, absl::Seconds(10), &culprit);
    ASSERT_TRUE(given.ok()) << given.status();
    if (rank != 1) {
      EXPECT_TRUE(given->empty());
      return;
    }
    ASSERT_EQ(given->size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      const uint64_t from = i == 0 ? 1 : i + 2;
      EXPECT_EQ((*given)[i].from, Incarnation{from});
      EXPECT_EQ((*given)[i].values, std::vector<float>(kCount, from == 3 ? 0.0f : from));
    }
  });
}

}  // namespace
}  // namespace muster
