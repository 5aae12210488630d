// Golden traces: deaths, freezes, joins, drains, and the fleet that is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/core/fleet_script.h"

namespace muster {
namespace {

using coordinator::TimerKind;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(ViewChangeTest, AKilledWorkerIsReplacedWithinTheReattachGrace) {
  FleetScript fleet;
  fleet.StartJob(3, 7);
  fleet.Close(3);
  EXPECT_THAT(fleet.Suspect(1, 3, 1),
              ElementsAre("persist epoch 2", "#1 <- propose 2", "#2 <- propose 2"));
  fleet.status(1).prepared = Prepared{8, 1};
  fleet.Answer(1, 2);
  fleet.status(2).prepared = Prepared{8, 1};
  EXPECT_THAT(fleet.Answer(2, 2), IsEmpty());  // worker 3 may still come back
  EXPECT_THAT(fleet.Fire(TimerKind::kReattach, 3), IsEmpty());
  // Nobody holds the record of step 8: it is done again.
  EXPECT_THAT(
      fleet.Fire(TimerKind::kCollect),
      ElementsAre("persist evicted #3", "persist decision: activate view 2 [#1 #2] from 1.7@1",
                  "#3 <- evicted: it was silent while the view changed", "close #3",
                  "changed to view 2: death w3", "#1 <- activate view 2 [#1 #2] from 1.7@1",
                  "#2 <- activate view 2 [#1 #2] from 1.7@1"));
}

TEST(ViewChangeTest, ARecordHeldBySomebodyRollsTheOthersForward) {
  FleetScript fleet;
  fleet.StartJob(3, 7);
  fleet.Close(3);
  fleet.Suspect(1, 3, 1);
  CommitRecord record;
  record.step = 8;
  record.epoch = 1;
  fleet.status(1).applied = {1, 8, 1};
  fleet.status(1).record = record;
  fleet.Answer(1, 2);
  fleet.status(2).prepared = Prepared{8, 1};
  fleet.Answer(2, 2);
  fleet.Fire(TimerKind::kReattach, 3);
  EXPECT_THAT(fleet.Fire(TimerKind::kCollect),
              Contains("#2 <- activate view 2 [#1 #2] from 1.8@1 roll-forward 8@1"));
}

TEST(ViewChangeTest, TwoDeathsMakeOneActivation) {
  FleetScript fleet;
  fleet.StartJob(4, 7);
  fleet.Close(3);
  fleet.Suspect(1, 3, 1);
  fleet.Answer(1, 2);
  fleet.Answer(2, 2);
  fleet.Close(4);
  fleet.Fire(TimerKind::kReattach, 3);
  EXPECT_FALSE(fleet.IsSet(TimerKind::kCollect));  // worker 4 is still waited for
  fleet.Fire(TimerKind::kReattach, 4);
  EXPECT_THAT(fleet.Fire(TimerKind::kCollect), Contains("changed to view 2: death w3 w4"));
}

TEST(ViewChangeTest, ADeathAfterTheAnswerIsNotPutIntoTheView) {
  FleetScript fleet;
  fleet.StartJob(3, 7);
  fleet.Suspect(1, 3, 1);
  fleet.Answer(3, 2);
  fleet.Answer(1, 2);
  fleet.Close(3);
  fleet.Answer(2, 2);
  fleet.Fire(TimerKind::kReattach, 3);
  EXPECT_THAT(fleet.Fire(TimerKind::kCollect),
              Contains("#1 <- activate view 2 [#1 #2] from 1.7@1"));
}

TEST(ViewChangeTest, AFrozenWorkerIsReplacedWhenItsLeaseLapses) {
  FleetScript fleet;
  fleet.StartJob(3, 7);
  EXPECT_THAT(fleet.Fire(TimerKind::kLease, 2), ElementsAre("persist epoch 2", "#1 <- propose 2",
                                                            "#2 <- propose 2", "#3 <- propose 2"));
  fleet.Answer(1, 2);
  fleet.Answer(3, 2);
  EXPECT_THAT(fleet.Fire(TimerKind::kCollect), Contains("changed to view 2: death w2"));
  // It wakes and still says that it runs: rule 2.
  EXPECT_THAT(
      fleet.Run(2, 1, {1, 7, 1}),
      ElementsAre("#2 <- evicted: this incarnation was evicted while it was silent", "close #2"));
}

TEST(ViewChangeTest, SuspicionIsNotDeath) {
  FleetScript fleet;
  fleet.StartJob(2, 7);
  fleet.Suspect(1, 2, 1);
  fleet.Answer(1, 2);
  EXPECT_THAT(fleet.Answer(2, 2), Contains("persist decision: activate view 2 [#1 #2] from 1.7@1"));
}

// What breaks every view of the same members before its first step is no link.
TEST(ViewChangeTest, ViewsThatNeverTakeAStepEndTheJobWithTheReason) {
  FleetScript fleet;
  fleet.StartJob(2, 7);
  // The first view took steps.
  const Epoch last = 1 + static_cast<Epoch>(CoordinatorOptions().fruitless_views);
  for (Epoch epoch = 1; epoch <= last; ++epoch) {
    fleet.Suspect(1, 0, epoch);
    fleet.Answer(1, epoch + 1);
    const Lines lines = fleet.Answer(2, epoch + 1);
    if (epoch < last) {
      EXPECT_THAT(lines, Not(Contains("job j is failed"))) << epoch;
      for (uint64_t i = 1; i <= 2; ++i) fleet.Run(i, epoch + 1, {1, 7, 1});
    } else {
      EXPECT_THAT(lines, Contains("job j is failed"));
    }
  }
}

TEST(ViewChangeTest, AStepBetweenFailuresKeepsTheJobAlive) {
  FleetScript fleet;
  fleet.StartJob(2, 7);
  for (Epoch epoch = 1; epoch <= 40; ++epoch) {
    for (uint64_t i = 1; i <= 2; ++i) {
      fleet.Run(i, epoch, {1, 7 + static_cast<Step>(epoch), epoch});
    }
    fleet.Suspect(1, 0, epoch);
    fleet.Answer(1, epoch + 1);
    EXPECT_THAT(fleet.Answer(2, epoch + 1), Not(Contains("job j is failed"))) << epoch;
  }
}

TEST(ViewChangeTest, ALinkThatBreaksAgainAndAgainEvictsTheHigherRank) {
  FleetScript fleet;
  fleet.StartJob(3, 7);
  for (Epoch epoch = 1; epoch <= 3; ++epoch) {
    fleet.Suspect(1, 2, epoch);
    fleet.Answer(1, epoch + 1);
    fleet.Answer(2, epoch + 1);
    const Lines last = fleet.Answer(3, epoch + 1);
    if (epoch < 3) {
      EXPECT_THAT(last, Not(Contains("persist evicted #2")));
      for (uint64_t i = 1; i <= 3; ++i) fleet.Run(i, epoch + 1, {1, 7, 1});
    } else {
      EXPECT_THAT(last, Contains("persist evicted #2"));
      EXPECT_THAT(last, Contains("changed to view 4: leave w2"));
    }
  }
}

TEST(ViewChangeTest, AJoinerLearnsBeforeTheOthersPause) {
  FleetScript fleet;
  fleet.StartJob(2, 7);
  EXPECT_THAT(fleet.Join(3), ElementsAre("#3 <- welcome", "#3 <- learn from #1 (epoch 1)"));
  fleet.status(3).job = "j";
  fleet.status(3).phase = WorkerPhase::kLearning;
  EXPECT_THAT(fleet.Say(3), IsEmpty());
  fleet.status(3).caught_up = true;
  EXPECT_THAT(fleet.Say(3), ElementsAre("#1 <- pause 1", "#2 <- pause 1"));
  fleet.Run(1, 1, {1, 9, 1}, WorkerPhase::kPaused);
  EXPECT_THAT(fleet.Run(2, 1, {1, 9, 1}, WorkerPhase::kPaused),
              Contains("#3 <- propose 2 sealed 1.9@1"));
  fleet.Answer(1, 2);
  fleet.Answer(2, 2);
  fleet.status(3).has_state = true;
  fleet.status(3).applied = {1, 9, 1};
  EXPECT_THAT(fleet.Answer(3, 2),
              Contains("persist decision: activate view 2 [#1 #2 #3] from 1.9@1"));
}

TEST(ViewChangeTest, ALearnerDoesNotHoldTheOthersUp) {
  FleetScript fleet;
  fleet.StartJob(1, 7);
  fleet.Join(2);
  fleet.status(2).job = "j";
  fleet.status(2).phase = WorkerPhase::kLearning;
  fleet.status(2).caught_up = true;
  fleet.Say(2);
  fleet.Run(1, 1, {1, 9, 1}, WorkerPhase::kPaused);
  fleet.Answer(1, 2);
  EXPECT_THAT(
      fleet.Fire(TimerKind::kLearnerAnswer),
      ElementsAre("persist decision: activate view 2 [#1] from 1.9@1", "changed to view 2: join",
                  "#1 <- activate view 2 [#1] from 1.9@1", "#2 <- learn from #1 (epoch 2)"));
}

TEST(ViewChangeTest, ALearnerGetsAnotherSourceWhenItsOwnDies) {
  FleetScript fleet;
  fleet.StartJob(2, 7);
  fleet.Join(3);
  fleet.status(3).job = "j";
  fleet.status(3).phase = WorkerPhase::kLearning;
  fleet.Say(3);
  fleet.Close(1);
  fleet.Suspect(2, 1, 1);
  fleet.Answer(2, 2);
  fleet.Fire(TimerKind::kReattach, 1);
  EXPECT_THAT(fleet.Fire(TimerKind::kCollect), Contains("#3 <- learn from #2 (epoch 2)"));
}

TEST(ViewChangeTest, ADrainAbortsNothing) {
  FleetScript fleet;
  fleet.StartJob(2, 7);
  fleet.status(2).drain_requested = true;
  EXPECT_THAT(fleet.Say(2), ElementsAre("#1 <- pause 1", "#2 <- pause 1"));
  fleet.Run(1, 1, {1, 8, 1}, WorkerPhase::kPaused);
  fleet.Run(2, 1, {1, 8, 1}, WorkerPhase::kPaused);
  fleet.Answer(1, 2);
  // It serves until the others are in the next view.
  EXPECT_THAT(fleet.Answer(2, 2),
              ElementsAre("persist decision: activate view 2 [#1] from 1.8@1",
                          "changed to view 2: drain w2", "#1 <- activate view 2 [#1] from 1.8@1"));
  EXPECT_THAT(fleet.Run(1, 2, {1, 8, 1}),
              ElementsAre("changed to view 2: drain w2", "#2 <- release"));
}

// Whoever leaves is in a view on hold first, where it can give what is its own to those who stay.
TEST(ViewChangeTest, WhoeverHandsOnSomethingDrainsByAViewOfItsOwn) {
  FleetScript fleet;
  fleet.workers_hand_on = true;
  fleet.StartJob(2, 7);
  fleet.status(2).drain_requested = true;
  EXPECT_THAT(fleet.Say(2), ElementsAre("#1 <- pause 1", "#2 <- pause 1"));
  fleet.Run(1, 1, {1, 8, 1}, WorkerPhase::kPaused);
  fleet.Run(2, 1, {1, 8, 1}, WorkerPhase::kPaused);
  fleet.Answer(1, 2);
  fleet.Answer(2, 2);
  const View view = *fleet.core().FindJob("j")->view;
  EXPECT_EQ(view.members.size(), 2u);
  EXPECT_EQ(view.leaving, std::vector<Incarnation>{Incarnation{2}});
  EXPECT_TRUE(view.hold);
  fleet.Run(1, 2, {1, 8, 1}, WorkerPhase::kPaused);
  fleet.Run(2, 2, {1, 8, 1}, WorkerPhase::kPaused);
  fleet.Answer(1, 3);
  fleet.Answer(2, 3);
  const View last = *fleet.core().FindJob("j")->view;
  EXPECT_EQ(last.epoch, 3u);
  EXPECT_EQ(last.members.size(), 1u);
  EXPECT_FALSE(last.hold);
  EXPECT_THAT(fleet.Run(1, 3, {1, 8, 1}), testing::Contains("#2 <- release"));
}

TEST(ViewChangeTest, AnIdleWorkerDrainsAtOnce) {
  FleetScript fleet;
  fleet.status(1).drain_requested = true;
  EXPECT_THAT(fleet.Join(1), ElementsAre("#1 <- welcome", "#1 <- release"));
}

TEST(ViewChangeTest, TheLastMemberDrainsWhenItsStateIsDurable) {
  FleetScript fleet;
  fleet.StartJob(1, 7);
  fleet.status(1).drain_requested = true;
  fleet.Say(1);
  fleet.Run(1, 1, {1, 8, 1}, WorkerPhase::kPaused);
  EXPECT_THAT(fleet.Answer(1, 2), Contains("#1 <- activate view 2 [#1] from 1.8@1 hold"));
  EXPECT_THAT(fleet.core().FindJob("j")->reason, HasSubstr("the last member is leaving"));
  EXPECT_THAT(fleet.Run(1, 2, {1, 8, 1}, WorkerPhase::kPaused), Not(Contains("#1 <- release")));
  const CheckpointReport report{{1, 8, 1}, "dir", "sum"};
  fleet.status(1).durable = report;
  EXPECT_THAT(fleet.Say(1), Contains("#1 <- commit-checkpoint 1.8@1"));
  fleet.status(1).durable.reset();
  fleet.status(1).committed = report;
  EXPECT_THAT(fleet.Say(1),
              ElementsAre("persist checkpoint named 1.8@1", "persist evicted #1",
                          "persist dissolved j", "#1 <- release", "close #1", "job j is waiting"));
  // The next worker goes on from there, on a new branch.
  fleet.Join(2);
  EXPECT_THAT(fleet.Answer(2, 3),
              Contains("persist decision: activate view 3 [#2] from 2.8@3 fresh 'dir'"));
}

// One of two workers dies in step 7 of a job that wants both: what that led to in the end.
Lines FallBelowTheLeast(FleetScript& fleet) {
  fleet.StartJob(2, 7, /*min_workers=*/2);
  fleet.Close(2);
  fleet.Suspect(1, 2, 1);
  fleet.Answer(1, 2);
  fleet.Fire(TimerKind::kReattach, 2);
  return fleet.Fire(TimerKind::kCollect);
}

TEST(ViewChangeTest, WhoeverDrainsAloneOnHoldSaysWhatItWaitsFor) {
  FleetScript fleet;
  FallBelowTheLeast(fleet);
  fleet.Run(1, 2, {1, 7, 1}, WorkerPhase::kPaused);
  EXPECT_EQ(fleet.core().FindJob("j")->reason, "1 of at least 2 workers; the state is kept");
  fleet.status(1).drain_requested = true;
  fleet.Say(1);
  EXPECT_THAT(fleet.core().FindJob("j")->reason, HasSubstr("the last member is leaving"));
  EXPECT_THAT(fleet.Fire(TimerKind::kDrainCheckpoint), Contains("#1 <- release"));
}

TEST(ViewChangeTest, BelowTheLeastTheStateIsKeptAndTheJobWaits) {
  FleetScript fleet;
  const Lines lines = FallBelowTheLeast(fleet);
  EXPECT_THAT(lines, Contains("job j is waiting"));
  EXPECT_THAT(lines, Contains("#1 <- activate view 2 [#1] from 1.7@1 hold"));
  fleet.Run(1, 2, {1, 7, 1}, WorkerPhase::kPaused);
  // A joiner learns from the one that holds the state, and the job goes on.
  fleet.Join(3);
  fleet.status(3).job = "j";
  fleet.status(3).phase = WorkerPhase::kLearning;
  fleet.status(3).caught_up = true;
  EXPECT_THAT(fleet.Say(3), Contains("#3 <- propose 3 sealed 1.7@1"));
  fleet.Answer(1, 3);
  fleet.status(3).has_state = true;
  fleet.status(3).applied = {1, 7, 1};
  EXPECT_THAT(fleet.Answer(3, 3), Contains("job j is running"));
}

TEST(ViewChangeTest, ALostFleetIsWaitedForThenStartsFromTheCheckpoint) {
  FleetScript fleet;
  fleet.StartJob(2, 7);
  const CheckpointReport report{{1, 5, 1}, "dir", "sum"};
  fleet.status(1).durable = report;
  fleet.Run(1, 1, {1, 7, 1});
  fleet.status(1).durable.reset();
  fleet.status(1).committed = report;
  fleet.Run(1, 1, {1, 7, 1});

  fleet.Fire(TimerKind::kLease, 1);
  EXPECT_THAT(fleet.Fire(TimerKind::kLease, 2), ElementsAre("job j is waiting"));
  // Rule 5: others may not go on before those have certainly stopped.
  fleet.Join(3);
  EXPECT_THAT(fleet.Join(4), ElementsAre("#4 <- welcome"));
  EXPECT_THAT(fleet.Fire(TimerKind::kOrphan), Contains("#3 <- propose 3"));
  fleet.Answer(3, 3);
  const Lines lines = fleet.Answer(4, 3);
  EXPECT_THAT(lines, Contains("persist decision: activate view 3 [#3 #4] from 2.5@3 fresh 'dir'"));
  EXPECT_THAT(lines, Contains("changed to view 3: restart w1 w2 from 'dir'"));
}

TEST(ViewChangeTest, AMemberThatComesBackSavesTheLostFleet) {
  FleetScript fleet;
  fleet.StartJob(2, 7);
  fleet.Fire(TimerKind::kLease, 1);
  fleet.Fire(TimerKind::kLease, 2);
  ASSERT_TRUE(fleet.IsSet(TimerKind::kOrphan));
  EXPECT_THAT(fleet.Say(1), Contains("job j is running"));
  EXPECT_FALSE(fleet.IsSet(TimerKind::kOrphan));
  EXPECT_FALSE(fleet.core().persistent().FindJob("j")->decision->view.members.empty());
}

TEST(ViewChangeTest, ACoordinatorThatSleptDoesNotTakeItForSilence) {
  FleetScript fleet;
  fleet.StartJob(2, 7);
  fleet.Wait(absl::Seconds(30));
  EXPECT_THAT(fleet.Fire(TimerKind::kLease, 2), IsEmpty());
  EXPECT_EQ(fleet.core().PendingEpoch(), 0u);
  EXPECT_TRUE(fleet.IsSet(TimerKind::kLease, 2));
}

TEST(ViewChangeTest, AnOrphanIsAskedAgain) {
  FleetScript fleet;
  fleet.StartJob(2, 7);
  EXPECT_THAT(fleet.Run(2, 1, {1, 7, 1}, WorkerPhase::kOrphaned), Contains("#2 <- propose 2"));
}

}  // namespace
}  // namespace muster
