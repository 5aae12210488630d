// Moves that fail: deaths, damage, other plans, states that can't be read, deadlines, options.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/state/corrupting_transport.h"
#include "tests/state/move_fixture.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(MoveStateFailureTest, AKilledParticipantIsNamedByAllForEverySeed) {
  const Layout layout = TestLayout();
  const Scenario scenario = Resize(Sharded(layout, 4), Sharded(layout, 3));
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    TransportLimits limits;
    limits.eager_bytes = 512;
    limits.unexpected_bytes = 4096;
    HostileMesh mesh = MakeHostileMesh(4, seed, limits);
    auto communicators = Communicators(std::move(mesh.ends));
    // The last participant gives nothing.
    const auto victim = static_cast<Rank>(seed % 3);
    RunRanks(4, [&](Rank p) {
      TestState state = scenario.StateOf(p);
      if (p == victim) {
        state.on_read = [&](int before) {
          if (before == static_cast<int>(seed % 5)) KillRank(*mesh.hub, victim);
          return absl::OkStatus();
        };
      }
      const int64_t before = state.CountHeld();
      const MoveOutcome outcome = MoveState(*communicators[p], scenario.plan, state, SmallChunks());
      int64_t arrived = 0;
      for (const Range range : outcome.arrived) {
        EXPECT_TRUE(state.HasAll(range));
        arrived += range.count;
      }
      EXPECT_EQ(state.CountHeld(), before + arrived);
      // Who had all that was its own before the death may have ended well.
      if (outcome.status.ok()) {
        EXPECT_NE(p, victim);
        EXPECT_EQ(arrived, scenario.plan.ReceivedBy(p));
        return;
      }
      EXPECT_TRUE(absl::IsUnavailable(outcome.status)) << outcome.status;
      EXPECT_EQ(outcome.culprit, std::optional<Rank>(victim));
    });
    if (HasFailure()) return;
  }
}

TEST(MoveStateFailureTest, ADamagedChunkIsNeverWritten) {
  const Layout layout = TestLayout();
  const Scenario scenario = MakeScenario(ShardMap::Replicated(layout.padded_count(), 1).value(),
                                         Sharded(layout, 2), {1}, {0, 1}, 2);
  // In the payload, in the fingerprint and in the checksum.
  for (const size_t from_end : {700, 12, 11, 4, 3, 0}) {
    for (const int number : {0, 3}) {
      SCOPED_TRACE(absl::StrCat("byte ", from_end, " of message ", number));
      Ends ends = MakeInProcessMesh(2, {});
      ends[1] =
          std::make_unique<CorruptingTransport>(std::move(ends[1]), 1000, number, from_end, 5);
      auto communicators = Communicators(std::move(ends));
      RunRanks(2, [&](Rank p) {
        TestState state = scenario.StateOf(p);
        MoveOptions options = SmallChunks();
        options.chunk_bytes = 1008;  // One segment, with the trailer.
        const MoveOutcome outcome = MoveState(*communicators[p], scenario.plan, state, options);
        EXPECT_TRUE(absl::IsDataLoss(outcome.status)) << outcome.status;
        EXPECT_THAT(std::string(outcome.status.message()),
                    AllOf(HasSubstr("126 elements from "), HasSubstr("from participant 1"),
                          HasSubstr("checksum")));
        if (p == 0) {
          EXPECT_EQ(outcome.bytes_received, number * 1008);
          EXPECT_EQ(state.CountHeld(), number * 126);
          for (const Range range : outcome.arrived) EXPECT_TRUE(state.HasAll(range));
        }
      });
    }
  }
}

TEST(MoveStateFailureTest, ParticipantsOfDifferentPlansRefuseEachOther) {
  const ShardMap before = ShardMap::Replicated(1000, 1).value();
  const ShardMap after = ShardMap::Replicated(1000, 2).value();
  const Scenario scenario = MakeScenario(before, after, {0}, {0, 1}, 2);
  StateTag other_tag = kTag;
  other_tag.step = 40;
  const ReshardPlan other_plan =
      PlanReshard(other_tag, HoldingsOf(before, {0}, other_tag), after, {0, 1}, 2).value();
  ASSERT_EQ(other_plan.transfers, scenario.plan.transfers);
  auto communicators = Communicators(MakeInProcessMesh(2, {}));
  RunRanks(2, [&](Rank p) {
    TestState state = scenario.StateOf(p);
    const MoveOutcome outcome =
        MoveState(*communicators[p], p == 0 ? other_plan : scenario.plan, state);
    // The giver may be done before the taker looks.
    if (p == 0) return;
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kFailedPrecondition) << outcome.status;
    EXPECT_THAT(std::string(outcome.status.message()), HasSubstr("participant 0 moves by plan"));
    EXPECT_EQ(state.CountHeld(), 0);
  });
}

TEST(MoveStateFailureTest, AStateThatCannotBeReadOrWrittenEndsItOnAll) {
  const Layout layout = TestLayout();
  const Scenario scenario = Resize(Sharded(layout, 3), Sharded(layout, 2));
  for (const bool reading : {true, false}) {
    auto communicators = Communicators(MakeInProcessMesh(3, {}));
    RunRanks(3, [&](Rank p) {
      TestState state = scenario.StateOf(p);
      const absl::Status broken = absl::InternalError("the disk is on fire");
      if (p == 1 && reading) state.on_read = [&](int) { return broken; };
      if (p == 1 && !reading) state.on_write = [&] { return broken; };
      const MoveOutcome outcome = MoveState(*communicators[p], scenario.plan, state, SmallChunks());
      EXPECT_THAT(std::string(outcome.status.message()), HasSubstr("the disk is on fire"));
    });
  }
}

TEST(MoveStateFailureTest, TheDeadlineNamesWhoIsLate) {
  const Layout layout = TestLayout();
  const Scenario scenario = Resize(Sharded(layout, 2), Sharded(layout, 1));
  auto communicators = Communicators(MakeInProcessMesh(2, {}));
  // Participant 0, which gives, never comes.
  TestState state = scenario.StateOf(1);
  MoveOptions options = SmallChunks();
  options.timeout = absl::Milliseconds(50);
  const MoveOutcome outcome = MoveState(*communicators[1], scenario.plan, state, options);
  EXPECT_TRUE(absl::IsDeadlineExceeded(outcome.status)) << outcome.status;
  EXPECT_THAT(std::string(outcome.status.message()),
              AllOf(HasSubstr("rank 0"), HasSubstr("step 41")));
  EXPECT_EQ(outcome.culprit, std::optional<Rank>(0));
}

TEST(MoveStateFailureTest, RefusesOptionsThatLeaveNoWindow) {
  const Scenario scenario = MakeScenario(ShardMap::Replicated(64, 1).value(),
                                         ShardMap::Replicated(64, 1).value(), {0}, {0}, 1);
  const auto text = [&scenario](int64_t chunk_bytes, int64_t window_bytes, size_t staged = 0) {
    auto communicators = Communicators(MakeInProcessMesh(1, {}));
    TestState state = scenario.StateOf(0);
    MoveOptions options;
    options.chunk_bytes = chunk_bytes;
    options.window_bytes = window_bytes;
    std::vector<std::byte> staging(staged);
    options.staging = absl::MakeSpan(staging);
    const MoveOutcome outcome = MoveState(*communicators[0], scenario.plan, state, options);
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(outcome.status.message());
  };
  EXPECT_THAT(text(0, 100), HasSubstr("chunks of 0 bytes"));
  EXPECT_THAT(text(100, 199), HasSubstr("in a window of 199"));
  EXPECT_THAT(text(100, 200, 255), HasSubstr("staging memory of 255 bytes; expected at least 256"));
  EXPECT_THAT(text(int64_t{1} << 30, int64_t{1} << 40), HasSubstr("at most"));
}

}  // namespace
}  // namespace muster
