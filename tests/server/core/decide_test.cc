#include "server/core/decide.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::ElementsAre;

constexpr Incarnation kA{1};
constexpr Incarnation kB{2};
constexpr Incarnation kC{3};

StateTag Tag(uint64_t branch, Step step, Epoch epoch) { return {branch, step, epoch}; }

CommitRecord RecordOf(Step step, Epoch epoch) {
  CommitRecord record;
  record.step = step;
  record.epoch = epoch;
  return record;
}

// The view of epoch 4 began at step 7, which epoch 2 had reduced.
Activate LastDecision() {
  Activate last;
  last.view.epoch = 4;
  last.view.resume = Tag(1, 7, 2);
  return last;
}

Answer Applied(Incarnation worker, StateTag tag) {
  Answer answer{worker, /*has_state=*/true, tag};
  answer.record = RecordOf(tag.step, tag.epoch);
  return answer;
}

Answer PreparedNext(Incarnation worker, StateTag applied, Epoch epoch) {
  Answer answer{worker, /*has_state=*/true, applied};
  answer.prepared = Prepared{applied.step + 1, epoch};
  return answer;
}

TEST(DecideTest, OneHolderOfTheRecordRollsTheOthersForward) {
  const Decision decision = Decide({PreparedNext(kA, Tag(1, 8, 4), 4), Applied(kB, Tag(1, 9, 4)),
                                    PreparedNext(kC, Tag(1, 8, 4), 4)},
                                   LastDecision(), true);
  EXPECT_EQ(decision.verdict, Verdict::kRollForward);
  EXPECT_EQ(decision.resume, Tag(1, 9, 4));
  EXPECT_EQ(decision.roll_forward, RecordOf(9, 4));
  EXPECT_THAT(decision.able, ElementsAre(kA, kB, kC));
}

TEST(DecideTest, WithoutTheRecordAPreparedStepIsDoneAgain) {
  const Decision decision = Decide(
      {PreparedNext(kA, Tag(1, 8, 4), 4), PreparedNext(kB, Tag(1, 8, 4), 4)}, LastDecision(), true);
  EXPECT_EQ(decision.verdict, Verdict::kResume);
  EXPECT_EQ(decision.resume, Tag(1, 8, 4));
  EXPECT_FALSE(decision.roll_forward.has_value());
  EXPECT_THAT(decision.able, ElementsAre(kA, kB));
}

TEST(DecideTest, AStepPreparedInAnotherEpochDoesNotReachTheRecord) {
  const Decision decision =
      Decide({Applied(kA, Tag(1, 8, 4)), PreparedNext(kB, Tag(1, 7, 2), 3)}, LastDecision(), true);
  EXPECT_THAT(decision.able, ElementsAre(kA));
}

TEST(DecideTest, TheLastDecisionIsAFloorAndItsRecordStillRollsForward) {
  Activate last = LastDecision();
  last.roll_forward = RecordOf(7, 2);
  // Nobody has followed yet: all still stand one step before.
  const Decision decision =
      Decide({PreparedNext(kA, Tag(1, 6, 2), 2), PreparedNext(kB, Tag(1, 6, 2), 2)}, last, true);
  EXPECT_EQ(decision.verdict, Verdict::kRollForward);
  EXPECT_EQ(decision.resume, Tag(1, 7, 2));
  EXPECT_THAT(decision.able, ElementsAre(kA, kB));
}

TEST(DecideTest, AFreshStartGoesOnForThoseWhoHaveNotMadeIt) {
  Activate last = LastDecision();
  last.view.resume = Tag(2, 5, 4);
  last.fresh_start = FreshStart{"checkpoint"};
  const Decision decision = Decide({Answer{kA}, Applied(kB, Tag(2, 5, 4))}, last, true);
  EXPECT_EQ(decision.verdict, Verdict::kStartAgain);
  EXPECT_EQ(decision.resume, Tag(2, 5, 4));
  EXPECT_EQ(decision.fresh_start, FreshStart{"checkpoint"});
  EXPECT_THAT(decision.able, ElementsAre(kA, kB));
}

TEST(DecideTest, AFreshStartIsClosedOnceAStepWasTaken) {
  Activate last = LastDecision();
  last.view.resume = Tag(2, 5, 4);
  last.fresh_start = FreshStart{"checkpoint"};
  const Decision decision = Decide({Answer{kA}, Applied(kB, Tag(2, 6, 4))}, last, true);
  EXPECT_EQ(decision.resume, Tag(2, 6, 4));
  EXPECT_THAT(decision.able, ElementsAre(kB));
}

TEST(DecideTest, NobodyAbleIsSaidPlainly) {
  const Decision decision = Decide({Answer{kA}}, LastDecision(), true);
  EXPECT_EQ(decision.verdict, Verdict::kUnreachable);
  EXPECT_TRUE(decision.able.empty());
}

TEST(DecideTest, TheSameStepOnAnotherBranchIsAnotherState) {
  EXPECT_FALSE(SameState(Tag(1, 7, 2), Tag(2, 7, 2), true));
  EXPECT_FALSE(SameState(Tag(1, 7, 2), Tag(1, 7, 3), true));
  EXPECT_TRUE(SameState(Tag(1, 7, 2), Tag(1, 7, 2), true));
  EXPECT_TRUE(SameState(Tag(1, 7, 2), Tag(2, 7, 5), false));  // the mutant
}

// ---- where parts come from ------------------------------------------------------------------

// A sharded view of epoch 4 with members 1, 2 and 3, whose parts were to come from the one of epoch
// 3 with the same members.
Activate SharedOut() {
  Activate last;
  last.view.epoch = 4;
  last.view.strategy.stage = 1;
  last.view.strategy.replicas = 1;
  for (Incarnation incarnation : {kA, kB, kC}) {
    last.view.members.emplace_back();
    last.view.members.back().incarnation = incarnation;
  }
  MoveSource source{last.view, {kA, kB, kC}};
  source.view.epoch = 3;
  last.move = source;
  return last;
}

Answer Holding(Incarnation worker, Holdings holdings) {
  Answer answer = Applied(worker, Tag(1, 7, 2));
  answer.holdings = holdings;
  return answer;
}

TEST(FindSourceTest, GoesOnFromTheMapThatEverySurvivorHolds) {
  const Activate last = SharedOut();
  // Two have their new parts, but the third has not: the old map has two copies of each shard.
  auto source = FindSource({Holding(kA, {.map = 3, .next = 4}), Holding(kB, {.map = 3, .next = 4}),
                            Holding(kC, {.map = 3})},
                           last);
  ASSERT_TRUE(source.has_value());
  EXPECT_EQ(source->view.epoch, 3u);
  EXPECT_THAT(source->givers, ElementsAre(kA, kB, kC));
  // One has freed its old part, so all had their new ones.
  source = FindSource({Holding(kA, {.map = 4}), Holding(kB, {.map = 3, .next = 4}),
                       Holding(kC, {.map = 3, .next = 4})},
                      last);
  ASSERT_TRUE(source.has_value());
  EXPECT_EQ(source->view.epoch, 4u);
}

TEST(FindSourceTest, OneDeathIsWithinTheReplicasTwoAreNot) {
  const Activate last = SharedOut();
  EXPECT_TRUE(FindSource({Holding(kA, {.map = 4}), Holding(kC, {.map = 4})}, last).has_value());
  EXPECT_FALSE(FindSource({Holding(kB, {.map = 4})}, last).has_value());
  EXPECT_FALSE(FindSource({Holding(kA, {.map = 4}), Holding(kB, {.map = 3})}, last).has_value())
      << "parts of different maps";
}

TEST(FindSourceTest, WhoHoldsEverythingGivesEverything) {
  Activate last = SharedOut();
  last.move->view.strategy.stage = 0;
  const auto source =
      FindSource({Holding(kA, {.next = 4, .whole = true}), Holding(kB, {.whole = true})}, last);
  ASSERT_TRUE(source.has_value());
  EXPECT_FALSE(source->view.strategy.sharded());
  EXPECT_THAT(source->givers, ElementsAre(kA, kB));
  EXPECT_EQ(source->view.members.size(), 2u);
}

// One server owns everything in view 4. It has freed the whole state it had before, the worker has
// not yet: were that to give, the death of the worker would lose what the server holds.
TEST(FindSourceTest, AnOwnerThatHasFreedTheOlderStateGives) {
  Activate last = SharedOut();
  last.move->view.strategy = Strategy();
  last.view.strategy = {.sync = SyncPath::kParameterServer, .replicas = 0, .servers = 1};
  last.view.members.resize(2);
  last.view.members[1].role = MemberRole::kParameterServer;
  const auto source =
      FindSource({Holding(kA, {.next = 4, .whole = true}), Holding(kB, {.map = 4})}, last);
  ASSERT_TRUE(source.has_value());
  EXPECT_EQ(source->view.epoch, 4u);
  EXPECT_TRUE(source->view.strategy.serves());
  EXPECT_THAT(source->givers, ElementsAre(kA, kB));
}

}  // namespace
}  // namespace muster
