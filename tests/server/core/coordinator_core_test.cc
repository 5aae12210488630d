// Golden traces: start, end, sessions, jobs and the coordinator's restart.
#include "server/core/coordinator_core.h"

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
using ::testing::StartsWith;

TEST(CoordinatorCoreTest, StartsAJobWhenItsWorkersAreHere) {
  FleetScript fleet;
  EXPECT_THAT(fleet.Submit(1, 2, 100),
              ElementsAre("persist job j", "job j is queued", "job j is starting"));
  EXPECT_THAT(fleet.Join(1), ElementsAre("#1 <- welcome"));
  EXPECT_THAT(fleet.Join(2), ElementsAre("#2 <- welcome", "persist epoch 1", "job j is starting",
                                         "#1 <- propose 1", "#2 <- propose 1"));
  EXPECT_THAT(fleet.Answer(2, 1), IsEmpty());
  // Persisted before it is said.
  EXPECT_THAT(fleet.Answer(1, 1),
              ElementsAre("persist decision: activate view 1 [#1 #2] from 1.0@1 fresh ''",
                          "job j is running", "changed to view 1: start w1 w2",
                          "#1 <- activate view 1 [#1 #2] from 1.0@1 fresh ''",
                          "#2 <- activate view 1 [#1 #2] from 1.0@1 fresh ''"));
  EXPECT_THAT(fleet.Run(1, 1, {1, 0, 1}), IsEmpty());
  EXPECT_THAT(fleet.Run(2, 1, {1, 0, 1}), ElementsAre("changed to view 1: start w1 w2"));
  EXPECT_THAT(fleet.Run(2, 1, {1, 1, 1}), ElementsAre("changed to view 1: start w1 w2, stepped"));
}

TEST(CoordinatorCoreTest, StartsWithFewerAfterTheStartTimeout) {
  FleetScript fleet;
  fleet.Submit(1, 3, 100);
  fleet.Join(1);
  EXPECT_THAT(fleet.Fire(TimerKind::kStart), Contains("#1 <- propose 1"));
}

TEST(CoordinatorCoreTest, ARecruitThatDoesNotAnswerIsLeftOut) {
  FleetScript fleet;
  fleet.Submit(1, 2, 100);
  fleet.Join(1);
  fleet.Join(2);
  fleet.Answer(1, 1);
  EXPECT_THAT(fleet.Fire(TimerKind::kLearnerAnswer),
              Contains("persist decision: activate view 1 [#1] from 1.0@1 fresh ''"));
}

TEST(CoordinatorCoreTest, SealsAndEndsTheJob) {
  FleetScript fleet;
  fleet.StartJob(2, 0, 1, /*steps=*/5);
  fleet.Run(1, 1, {1, 5, 1}, WorkerPhase::kPaused);
  EXPECT_THAT(fleet.Run(2, 1, {1, 5, 1}, WorkerPhase::kPaused),
              ElementsAre("persist seal 1.5@1", "#1 <- seal 1 1.5@1", "#2 <- seal 1 1.5@1"));
  EXPECT_THAT(fleet.Run(1, 1, {1, 5, 1}, WorkerPhase::kFinished), IsEmpty());
  EXPECT_THAT(fleet.Run(2, 1, {1, 5, 1}, WorkerPhase::kFinished),
              ElementsAre("persist job j succeeded", "job j is succeeded",
                          "#1 <- end-job j succeeded", "#2 <- end-job j succeeded"));
}

TEST(CoordinatorCoreTest, ADeathDuringTheFinalWorkSealsAgain) {
  FleetScript fleet;
  fleet.StartJob(2, 0, 1, /*steps=*/5);
  fleet.Run(1, 1, {1, 5, 1}, WorkerPhase::kPaused);
  fleet.Run(2, 1, {1, 5, 1}, WorkerPhase::kPaused);
  fleet.Close(2);
  fleet.Suspect(1, 2, 1);
  fleet.Answer(1, 2);
  fleet.Fire(TimerKind::kReattach, 2);
  EXPECT_THAT(fleet.Fire(TimerKind::kCollect),
              Contains("#1 <- activate view 2 [#1] from 1.5@1 hold"));
  EXPECT_THAT(fleet.Run(1, 2, {1, 5, 1}, WorkerPhase::kPaused), Contains("#1 <- seal 2 1.5@1"));
}

TEST(CoordinatorCoreTest, AFailureOfAMemberFailsTheJob) {
  FleetScript fleet;
  fleet.StartJob(2, 3);
  fleet.status(2).failure = "the loss is not a number";
  fleet.status(2).phase = WorkerPhase::kFailed;
  fleet.status(2).progress = Progress{.step = 7};
  EXPECT_THAT(fleet.Say(2), ElementsAre("persist job j failed", "job j is failed",
                                        "#1 <- end-job j failed", "#2 <- end-job j failed"));
  EXPECT_EQ(fleet.core().FindJob("j")->reason, "worker w2: the loss is not a number");
  // As far as it came by its last word.
  ASSERT_TRUE(fleet.core().FindJob("j")->progress.has_value());
  EXPECT_EQ(fleet.core().FindJob("j")->progress->step, 7);
}

TEST(CoordinatorCoreTest, CancelEndsTheJobForAll) {
  FleetScript fleet;
  fleet.StartJob(2, 3);
  EXPECT_THAT(fleet.Feed(coordinator::JobCancelled{"j", "by hand"}),
              ElementsAre("persist job j cancelled", "job j is cancelled",
                          "#1 <- end-job j cancelled", "#2 <- end-job j cancelled"));
  EXPECT_THAT(fleet.Feed(coordinator::JobCancelled{"j", "by hand"}), IsEmpty());
}

TEST(CoordinatorCoreTest, ARequestSentTwiceIsOneJob) {
  FleetScript fleet;
  fleet.Submit(1, 2, 100);
  EXPECT_THAT(fleet.Submit(1, 2, 100), IsEmpty());
  EXPECT_EQ(fleet.core().FindRequest("r"), "j");
  EXPECT_EQ(fleet.core().Jobs().size(), 1u);
}

TEST(CoordinatorCoreTest, RefusesAnotherVersionAndAnotherFleet) {
  FleetScript fleet;
  Hello hello;
  hello.self.name = "w1";
  hello.self.incarnation = Incarnation{1};
  hello.protocol_version = 99;
  EXPECT_THAT(fleet.Feed(coordinator::SessionOpened{hello}),
              ElementsAre(StartsWith("#1 <- refused: worker w1 speaks protocol 99"), "close #1"));
  hello.protocol_version = kControlProtocolVersion;
  hello.fleet_id = "elsewhere";
  EXPECT_THAT(fleet.Feed(coordinator::SessionOpened{hello}),
              ElementsAre(StartsWith("#1 <- refused: worker w1 belongs to fleet"), "close #1"));
}

TEST(CoordinatorCoreTest, ReattachingChangesNoView) {
  FleetScript fleet;
  fleet.StartJob(2, 3);
  EXPECT_THAT(fleet.Close(2), IsEmpty());
  EXPECT_FALSE(fleet.IsSet(TimerKind::kReattach, 2));  // a closed session alone waits for the lease
  EXPECT_THAT(fleet.Join(2), ElementsAre("#2 <- welcome"));
}

TEST(CoordinatorCoreTest, ARestartedWorkerFencesItsOldIncarnation) {
  FleetScript fleet;
  fleet.StartJob(2, 3);
  const Lines joined = fleet.Join(3, "w2");
  EXPECT_THAT(joined, Contains("persist evicted #2"));
  // For good: a process that still lives would push the new one out, and be pushed out, for ever.
  EXPECT_THAT(joined,
              Contains(StartsWith("#2 <- refused: a newer process has joined as worker w2")));
  EXPECT_EQ(fleet.core().PendingEpoch(), 2u);
  fleet.Answer(1, 2);
  EXPECT_THAT(fleet.Fire(TimerKind::kCollect), Contains("changed to view 2: death w2"));
  // Rule 2: for good.
  EXPECT_THAT(fleet.Join(2), Contains(StartsWith("#2 <- refused: a newer process")));
  EXPECT_THAT(fleet.Join(2), Not(Contains("#2 <- welcome")));
  // Without the new one it may come back, as another incarnation.
  fleet.Close(3);
  fleet.Fire(TimerKind::kLease, 3);
  EXPECT_THAT(fleet.Join(2), Contains(StartsWith("#2 <- evicted")));
}

TEST(CoordinatorCoreTest, AnUnfollowedDirectiveIsSentAgain) {
  FleetScript fleet;
  fleet.Submit(1, 1, 100);
  fleet.Join(1);
  EXPECT_THAT(fleet.Say(1), IsEmpty());
  fleet.Wait(absl::Seconds(1));
  EXPECT_THAT(fleet.Say(1), ElementsAre("#1 <- propose 1"));
  // A status that comes late says nothing.
  fleet.status(1).sequence -= 2;
  fleet.Wait(absl::Seconds(1));
  EXPECT_THAT(fleet.Say(1), IsEmpty());
}

TEST(CoordinatorCoreTest, CheckpointsAreDecidedBeforeTheyAreNamed) {
  FleetScript fleet;
  fleet.StartJob(2, 3);
  const CheckpointReport report{{1, 4, 1}, "dir", "sum"};
  fleet.status(1).durable = report;
  EXPECT_THAT(fleet.Run(1, 1, {1, 5, 1}),
              ElementsAre("persist checkpoint decided 1.4@1", "#1 <- commit-checkpoint 1.4@1"));
  EXPECT_FALSE(fleet.core().FindJob("j")->newest_checkpoint.has_value());
  fleet.status(1).durable.reset();
  fleet.status(1).committed = report;
  EXPECT_THAT(fleet.Run(1, 1, {1, 5, 1}), ElementsAre("persist checkpoint named 1.4@1"));
  EXPECT_EQ(fleet.core().FindJob("j")->newest_checkpoint, report);
}

TEST(CoordinatorCoreTest, ACheckpointInPartsIsDecidedWhenAllAreDurableInTheViewInForce) {
  FleetScript fleet;
  fleet.StartJob(3, 5);
  const auto part = [](int32_t index, Step step) {
    return CheckpointReport{{1, step, 1}, "dir", "sum", index, 3};
  };
  fleet.status(2).durable = part(1, 4);
  EXPECT_THAT(fleet.Say(2), ElementsAre());
  fleet.status(1).durable = part(0, 4);
  EXPECT_THAT(fleet.Say(1), ElementsAre());
  // Of another step, into another directory, twice the same: none of them is the one that is
  // missing.
  for (const CheckpointReport& other :
       {part(2, 3), part(1, 4), CheckpointReport{{1, 4, 1}, "other", "sum", 2, 3},
        CheckpointReport{{1, 4, 1}, "dir", "sum", 2, 4}}) {
    fleet.status(3).durable = other;
    EXPECT_THAT(fleet.Say(3), ElementsAre());
  }
  fleet.status(3).durable = part(2, 4);
  // Its first part's writer gives all of them their name.
  EXPECT_THAT(fleet.Say(3),
              ElementsAre("persist checkpoint decided 1.4@1", "#1 <- commit-checkpoint 1.4@1"));
  fleet.status(1).durable.reset();
  fleet.status(1).committed = part(0, 4);
  EXPECT_THAT(fleet.Say(1), ElementsAre("persist checkpoint named 1.4@1"));
  EXPECT_EQ(fleet.core().FindJob("j")->newest_checkpoint, part(0, 4));
}

TEST(CoordinatorCoreTest, ACheckpointWhoseWriterDiedIsNotDecided) {
  FleetScript fleet;
  fleet.StartJob(2, 5);
  fleet.status(1).durable = CheckpointReport{{1, 4, 1}, "dir", "sum", 0, 2};
  EXPECT_THAT(fleet.Say(1), ElementsAre());
  fleet.Suspect(1, 2, 1);
  fleet.Close(2);
  fleet.Answer(1, 2);
  const Lines lines = fleet.Run(1, 2, {1, 6, 2});
  EXPECT_THAT(lines, Not(Contains("persist checkpoint decided 1.4@1")));
  EXPECT_THAT(fleet.Say(1), Not(Contains("persist checkpoint decided 1.4@1")));
}

TEST(CoordinatorCoreTest, AJobThatResumesStartsFromTheNewestCheckpointAnyOfThemSees) {
  FleetScript fleet;
  fleet.Submit(1, 3, 100);
  for (const uint64_t worker : {1, 2, 3}) fleet.Join(worker);
  // By branch, then by step. Worker 3 reaches none.
  fleet.status(1).committed = CheckpointReport{{1, 60, 4}, "older branch", "sum"};
  fleet.Answer(1, 1);
  fleet.status(2).committed = CheckpointReport{{2, 40, 9}, "newer branch", "sum"};
  fleet.Answer(2, 1);
  const Lines lines = fleet.Answer(3, 1);
  EXPECT_THAT(lines, Contains("persist checkpoint named 2.40@9"));
  EXPECT_THAT(lines, Contains("persist decision: activate view 1 [#1 #2 #3] from 3.40@1 fresh "
                              "'newer branch'"));
}

TEST(CoordinatorCoreTest, AJobThatResumesWhereItHasEndedFails) {
  FleetScript fleet;
  fleet.Submit(1, 1, 100);
  fleet.Join(1);
  fleet.status(1).committed = CheckpointReport{{1, 100, 4}, "dir/step-00000100", "sum"};
  EXPECT_THAT(fleet.Answer(1, 1), Contains("job j is failed"));
  EXPECT_THAT(fleet.core().FindJob("j")->reason,
              HasSubstr("dir/step-00000100 holds step 100 already, the job has 100 steps"));
}

TEST(CoordinatorCoreTest, ACheckpointOfAnotherBranchIsNotDecided) {
  FleetScript fleet;
  fleet.StartJob(2, 3);
  fleet.status(1).durable = CheckpointReport{{7, 4, 1}, "dir", "sum"};
  EXPECT_THAT(fleet.Run(1, 1, {1, 5, 1}), Not(Contains("persist checkpoint decided 7.4@1")));
}

TEST(CoordinatorCoreTest, ARestartGoesOnWithoutAViewChange) {
  FleetScript before;
  before.StartJob(2, 3);
  FleetScript after({}, before.core().persistent());
  EXPECT_EQ(after.core().term(), 2u);
  after.status(1) = before.status(1);
  after.status(2) = before.status(2);
  EXPECT_THAT(after.Join(1), ElementsAre("#1 <- welcome"));
  EXPECT_THAT(after.Join(2), ElementsAre("#2 <- welcome"));
  EXPECT_EQ(after.core().PendingEpoch(), 0u);
  EXPECT_EQ(after.core().FindJob("j")->state, JobState::kRunning);
}

TEST(CoordinatorCoreTest, ARestartBetweenDecisionAndActivateSendsItAgain) {
  FleetScript before;
  before.StartJob(2, 3);
  FleetScript after({}, before.core().persistent());
  // Worker 1 has answered and heard nothing since.
  after.status(1).phase = WorkerPhase::kQuiesced;
  after.status(1).job = "j";
  after.status(1).seen_epoch = after.status(1).answered_epoch = 1;
  EXPECT_THAT(after.Join(1), Contains("#1 <- activate view 1 [#1 #2] from 1.0@1 fresh ''"));
}

TEST(CoordinatorCoreTest, ARestartGoesBeyondEveryEpochHeardOf) {
  FleetScript before;
  before.StartJob(2, 3);
  FleetScript after({}, before.core().persistent());
  after.status(1) = before.status(1);
  after.status(1).seen_epoch = 9;  // of a proposal this store knows nothing of
  after.status(1).answered_epoch = 9;
  after.status(1).phase = WorkerPhase::kQuiesced;
  EXPECT_THAT(after.Join(1), Contains("#1 <- propose 10"));
}

TEST(CoordinatorCoreTest, AnUnknownJobIsEndedOnTheWorker) {
  FleetScript fleet;
  fleet.status(1).job = "gone";
  fleet.status(1).phase = WorkerPhase::kRunning;
  EXPECT_THAT(fleet.Join(1), ElementsAre("#1 <- welcome", "#1 <- end-job gone failed unknown"));
}

// A job for one worker is submitted; worker 2 is free, worker 1 keeps the state of a job that is
// not known, which may be what the new one resumes from.
FleetScript WhileAnotherJobEnds() {
  FleetScript fleet;
  fleet.status(1).job = "gone";
  fleet.status(1).phase = WorkerPhase::kOrphaned;
  fleet.Join(1);
  fleet.Submit(1, 1, 100);
  EXPECT_THAT(fleet.Join(2), Not(Contains(HasSubstr("propose"))));
  return fleet;
}

TEST(CoordinatorCoreTest, AJobWaitsForWorkersThatStillEndAnotherJob) {
  FleetScript fleet = WhileAnotherJobEnds();
  fleet.status(1).job = "";
  fleet.status(1).phase = WorkerPhase::kIdle;
  EXPECT_THAT(fleet.Say(1), Contains("#1 <- propose 1"));
}

TEST(CoordinatorCoreTest, AJobWaitsForThemOnlyForTheStartTimeout) {
  FleetScript fleet = WhileAnotherJobEnds();
  EXPECT_THAT(fleet.Fire(TimerKind::kStart), Contains("#2 <- propose 1"));
}

TEST(CoordinatorCoreTest, TheStartTimeoutIsTheJobs) {
  CoordinatorCore core(CoordinatorOptions{}, PersistentState());
  const absl::Time now = absl::UnixEpoch();
  core.Start(now);
  coordinator::JobSubmitted submitted;
  submitted.plan = {.id = "j",
                    .min_workers = 1,
                    .start_workers = 2,
                    .start_timeout = absl::Milliseconds(700),
                    .total_steps = 10};
  bool set = false;
  for (const coordinator::Action& action : core.Handle(submitted, now)) {
    const auto* timer = std::get_if<coordinator::SetTimer>(&action);
    if (timer == nullptr || timer->id.kind != TimerKind::kStart) continue;
    set = true;
    EXPECT_EQ(timer->at, now + absl::Milliseconds(700));
  }
  EXPECT_TRUE(set);
}

TEST(CoordinatorCoreTest, ACheckpointOfAnotherJobIsNotResumedFrom) {
  FleetScript fleet;
  fleet.Submit(1, 1, 100);
  fleet.status(1).committed = CheckpointReport{{1, 50, 1}, "dir", "sum"};
  fleet.Join(1);
  WorkerStatus& status = fleet.status(1);
  status.job = "gone";
  status.phase = WorkerPhase::kQuiesced;
  status.seen_epoch = status.answered_epoch = 1;
  EXPECT_THAT(fleet.Say(1), Contains(HasSubstr("from 1.0@1 fresh ''")));
}

TEST(CoordinatorCoreTest, TheFirstViewWaitsForAWorkerThatLoadsSlowly) {
  CoordinatorOptions options;
  options.learner_answer_timeout = absl::Seconds(5);
  CoordinatorCore core(options, PersistentState());
  core.Start(absl::UnixEpoch());
  coordinator::JobSubmitted submitted;
  submitted.plan = {
      .id = "j", .min_workers = 1, .start_workers = 1, .max_workers = 1, .total_steps = 10};
  core.Handle(submitted, absl::UnixEpoch());
  Hello hello;
  hello.protocol_version = kControlProtocolVersion;
  hello.self = {.name = "w", .incarnation = Incarnation{1}};
  core.Handle(coordinator::SessionOpened{hello}, absl::UnixEpoch());
  WorkerStatus status;
  status.sequence = 1;
  for (const coordinator::Action& action :
       core.Handle(coordinator::StatusReceived{Incarnation{1}, status}, absl::UnixEpoch())) {
    const auto* set = std::get_if<coordinator::SetTimer>(&action);
    if (set == nullptr || set->id.kind != TimerKind::kLearnerAnswer) continue;
    EXPECT_EQ(set->at, absl::UnixEpoch() + absl::Seconds(30));
    return;
  }
  ADD_FAILURE() << "no timer for the answers";
}

}  // namespace
}  // namespace muster
