#include "worker/core/worker_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/worker/core/worker_core_fixture.h"

namespace muster {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

TEST_F(WorkerCoreTest, StartsFromNothing) {
  EXPECT_THAT(Feed(worker::SessionAttached{}),
              ElementsAre("status idle seen 0 answered 0 active 0"));
  EXPECT_THAT(Tell(MakePropose(1)),
              ElementsAre("quiesce 1", "status quiesced seen 1 answered 0 active 0"));
  EXPECT_THAT(Feed(worker::Quiesced{1}), ElementsAre("status quiesced seen 1 answered 1 active 0"));
  Activate activate = MakeActivate(1, {1, 0, 1});
  activate.fresh_start = FreshStart{"dir"};
  EXPECT_THAT(Tell(activate), ElementsAre("start-fresh 1.0@1 'dir'", "connect-mesh 1",
                                          "status activating seen 1 answered 1 active 1"));
  EXPECT_THAT(Feed(worker::MeshConnected{1}), IsEmpty());
  EXPECT_THAT(Feed(worker::StateReady{1, {1, 0, 1}}),
              ElementsAre("run-steps 1 from 1",
                          "status running seen 1 answered 1 active 1 applied 1.0@1 stable 1.0@1"));
  EXPECT_THAT(Feed(worker::StepPrepared{1, 1}), ElementsAre("contribute 1@1"));
  EXPECT_THAT(Feed(worker::RecordFormed{1, MakeRecord(1, 1)}), ElementsAre("apply 1.1@1"));
  // The first step applied in a view is told at once; the step is not yet stable.
  EXPECT_THAT(Feed(worker::StepApplied{1, {1, 1, 1}}),
              ElementsAre("status running seen 1 answered 1 active 1 applied 1.1@1 stable 1.0@1"));
  EXPECT_THAT(Feed(worker::StepPrepared{1, 2}), ElementsAre("contribute 2@1"));
  EXPECT_THAT(Feed(worker::RecordFormed{1, MakeRecord(2, 1)}), ElementsAre("apply 1.2@1"));
  EXPECT_EQ(core_.Status().stable, (StateTag{1, 1, 1}));
}

TEST_F(WorkerCoreTest, OrdersCarryTheDescriptionOfTheirJob) {
  const auto first = std::make_shared<const JobSpec>();
  const auto quiesce = OrdersAfter<worker::Quiesce>(MakePropose(1), first);
  ASSERT_EQ(quiesce.size(), 1u);
  EXPECT_EQ(quiesce[0].spec, first);
  Feed(worker::Quiesced{1});
  Activate activate = MakeActivate(1, {1, 0, 1});
  activate.fresh_start = FreshStart{};
  const auto fresh = OrdersAfter<worker::StartFresh>(activate, std::make_shared<const JobSpec>());
  ASSERT_EQ(fresh.size(), 1u);
  EXPECT_EQ(fresh[0].spec, first);

  Tell(EndJob{.job = "j"});
  const auto second = std::make_shared<const JobSpec>();
  const auto learn = OrdersAfter<worker::StartLearning>(
      Learn{.job = "k", .epoch = 9, .source = MakeMember(kPeer)}, second);
  ASSERT_EQ(learn.size(), 1u);
  EXPECT_EQ(learn[0].spec, second);
}

TEST_F(WorkerCoreTest, Rule1NothingOlderEntersTheStateAfterTheProposal) {
  Start();
  EXPECT_THAT(Feed(worker::StepPrepared{1, 1}), ElementsAre("contribute 1@1"));
  Tell(MakePropose(2));
  EXPECT_THAT(Feed(worker::RecordFormed{1, MakeRecord(1, 1)}), IsEmpty());
  EXPECT_THAT(Feed(worker::StepPrepared{1, 1}), IsEmpty());
  EXPECT_THAT(Feed(worker::Quiesced{1}), IsEmpty());  // of an older proposal
  Feed(worker::Quiesced{2});
  EXPECT_THAT(Feed(worker::RecordFormed{1, MakeRecord(1, 1)}), IsEmpty());
  EXPECT_EQ(core_.Status().applied, (StateTag{1, 0, 1}));
  EXPECT_EQ(core_.Status().prepared, (Prepared{1, 1}));
}

TEST_F(WorkerCoreTest, RollsForwardWhatItPrepared) {
  Start();
  Feed(worker::StepPrepared{1, 1});
  Tell(MakePropose(2));
  Feed(worker::Quiesced{2});
  Activate activate = MakeActivate(2, {1, 1, 1});
  activate.roll_forward = MakeRecord(1, 1);
  EXPECT_THAT(Tell(activate), Contains("roll-forward 1.1@1"));
  Feed(worker::MeshConnected{2});
  EXPECT_THAT(Feed(worker::StateReady{2, {1, 1, 1}}), Contains("run-steps 2 from 2"));
}

TEST_F(WorkerCoreTest, DiscardsWhatNobodyCommitted) {
  Start();
  Feed(worker::StepPrepared{1, 1});
  Tell(MakePropose(2));
  Feed(worker::Quiesced{2});
  EXPECT_THAT(Tell(MakeActivate(2, {1, 0, 1})), Contains("discard-prepared"));
  EXPECT_THAT(Feed(worker::MeshConnected{2}), Contains("run-steps 2 from 1"));
}

TEST_F(WorkerCoreTest, Rule3AnotherStateOfTheSameStepIsRefused) {
  Start();
  Step(1, 1);
  Tell(MakePropose(3));
  Feed(worker::Quiesced{3});
  EXPECT_THAT(Tell(MakeActivate(3, {1, 1, 2})), Contains(::testing::StartsWith("rejoin: view 3")));
  EXPECT_TRUE(core_.left());
}

TEST_F(WorkerCoreTest, Rule4OnlyStableStepsAreShown) {
  Start();
  Progress progress;
  progress.step = 1;
  Feed(worker::StepPrepared{1, 1});
  Feed(worker::RecordFormed{1, MakeRecord(1, 1)});
  Feed(worker::ProgressMeasured{progress});
  Feed(worker::CheckpointDurable{{{1, 1, 1}, "dir", "sum"}, "j"});
  EXPECT_FALSE(core_.Status().progress.has_value());
  EXPECT_FALSE(core_.Status().durable.has_value());
  Feed(worker::StepApplied{1, {1, 1, 1}});
  Feed(worker::StepPrepared{1, 2});
  Feed(worker::RecordFormed{1, MakeRecord(2, 1)});
  EXPECT_EQ(core_.Status().progress->step, 1);
  EXPECT_EQ(core_.Status().durable->path, "dir");
  EXPECT_THAT(Tell(CommitCheckpoint{{1, 1, 1}}), ElementsAre("name-files 1.1@1"));
  EXPECT_THAT(Tell(CommitCheckpoint{{1, 1, 1}}), IsEmpty());  // said again
  Feed(worker::CheckpointCommitted{{{1, 1, 1}, "dir", "sum"}, "j"});
  EXPECT_EQ(core_.Status().committed->path, "dir");
}

TEST_F(WorkerCoreTest, ACheckpointOfAJobThatHasEndedIsNotOfTheNext) {
  Start();
  Tell(EndJob{"j", JobState::kCancelled, ""});
  Feed(worker::CheckpointCommitted{{{1, 1, 1}, "dir", "sum"}, "j"});
  Feed(worker::CheckpointDurable{{{1, 1, 1}, "dir", "sum"}, "j"});
  EXPECT_FALSE(core_.Status().committed.has_value());
  EXPECT_FALSE(core_.Status().durable.has_value());
}

TEST_F(WorkerCoreTest, OldAndForeignDirectivesAreIgnored) {
  Start();
  Tell(MakePropose(5), /*term=*/2);
  Feed(worker::Quiesced{5});
  EXPECT_THAT(Tell(MakePropose(4), 2), IsEmpty());
  EXPECT_THAT(Tell(MakeActivate(4, {1, 0, 1}), 2), IsEmpty());
  EXPECT_THAT(Tell(MakePropose(6), /*term=*/1), IsEmpty());  // a coordinator that was replaced
  // Asked again: the coordinator has not heard the answer.
  EXPECT_THAT(Tell(MakePropose(5), 2), Contains(::testing::HasSubstr("answered 5")));
  EXPECT_THAT(Tell(EndJob{"other", JobState::kFailed, ""}, 2), IsEmpty());
}

TEST_F(WorkerCoreTest, PauseRidesInTheNextRecord) {
  Start();
  EXPECT_THAT(Tell(Pause{1}), IsEmpty());
  EXPECT_THAT(Feed(worker::StepPrepared{1, 1}), ElementsAre("contribute 1@1 pause"));
  Feed(worker::RecordFormed{1, MakeRecord(1, 1, /*pause=*/true)});
  EXPECT_THAT(Feed(worker::StepApplied{1, {1, 1, 1}}),
              ElementsAre("status paused seen 1 answered 1 active 1 applied 1.1@1 stable 1.0@1"));
  EXPECT_THAT(Feed(worker::StepPrepared{1, 2}), IsEmpty());
  // `sealed` says that all rest there: now it is stable.
  Tell(MakePropose(2, StateTag{1, 1, 1}));
  EXPECT_EQ(core_.Status().stable, (StateTag{1, 1, 1}));
}

TEST_F(WorkerCoreTest, LearnsThenAnswersTheSealedProposal) {
  Feed(worker::SessionAttached{});
  Learn learn{"j", 1, MakeMember(kPeer)};
  EXPECT_THAT(Tell(learn), Contains("start-learning from #2"));
  EXPECT_THAT(Tell(learn), IsEmpty());
  Feed(worker::LearnProgress{1, StateTag{1, 2, 1}, StateTag{1, 3, 1}, true});
  EXPECT_TRUE(core_.Status().caught_up);
  Tell(MakePropose(2, StateTag{1, 4, 1}));
  EXPECT_THAT(Feed(worker::LearnProgress{1, StateTag{1, 3, 1}, StateTag{1, 4, 1}, true}),
              Contains("learn-up-to 1.4@1"));
  EXPECT_THAT(Feed(worker::LearnProgress{7, StateTag{1, 4, 1}, std::nullopt, true}), IsEmpty());
  EXPECT_THAT(Feed(worker::LearnProgress{1, StateTag{1, 4, 1}, StateTag{1, 4, 1}, true}),
              ElementsAre("stop-learning", "quiesce 2",
                          "status quiesced seen 2 answered 0 active 0 applied 1.4@1 stable 1.4@1"));
  Feed(worker::Quiesced{2});
  EXPECT_THAT(Tell(MakeActivate(2, {1, 4, 1})), Contains("connect-mesh 2"));
}

TEST_F(WorkerCoreTest, ALearnerWhoseSourceFailsAsksAgain) {
  Feed(worker::SessionAttached{});
  Tell(Learn{"j", 1, MakeMember(kPeer)});
  EXPECT_THAT(Feed(worker::LearnFailed{1, "gone"}), Contains(::testing::HasSubstr("status idle")));
  EXPECT_THAT(Tell(Learn{"j", 1, MakeMember(Incarnation{3})}), Contains("start-learning from #3"));
}

TEST_F(WorkerCoreTest, ABrokenMeshIsReportedUntilItIsHeard) {
  Start();
  EXPECT_THAT(Feed(worker::MeshFailed{1, Rank{1}, "reset"}), ElementsAre("suspect #2 in 1"));
  EXPECT_THAT(Feed(worker::MeshFailed{1, Rank{1}, "reset"}), IsEmpty());
  EXPECT_THAT(Feed(worker::TimerFired{worker::TimerId::kHeartbeat}), Contains("suspect #2 in 1"));
  Tell(MakePropose(2));
  EXPECT_THAT(Feed(worker::TimerFired{worker::TimerId::kHeartbeat}),
              Not(Contains("suspect #2 in 1")));
}

TEST_F(WorkerCoreTest, ShowsItsPathAndWhatItWaitsForInTheViewInForce) {
  Start();
  const CommunicationPath path{.transport = "tcp", .why = "asked for"};
  const CollectiveWait wait{.operation = "barrier #3", .waits_for = {1}, .waited_ms = 150};
  EXPECT_EQ(Feed(worker::PathMeasured{1, path}), std::vector<std::string>{});
  EXPECT_EQ(Feed(worker::WaitMeasured{1, wait}), std::vector<std::string>{});
  EXPECT_EQ(core_.Status().path, path);
  EXPECT_EQ(core_.Status().wait, wait);
  Feed(worker::WaitMeasured{2, std::nullopt});  // of another view
  EXPECT_EQ(core_.Status().wait, wait);

  // That it is late is said at once, once; the rest with the heartbeats.
  CollectiveWait late = wait;
  late.late = true;
  late.waited_ms = 1'000;
  EXPECT_EQ(Feed(worker::WaitMeasured{1, late}).size(), 1u);
  late.waited_ms = 1'100;
  EXPECT_TRUE(Feed(worker::WaitMeasured{1, late}).empty());
  EXPECT_EQ(core_.Status().wait, late);
  EXPECT_EQ(Feed(worker::WaitMeasured{1, std::nullopt}).size(), 1u);
  EXPECT_EQ(core_.Status().wait, std::nullopt);

  Feed(worker::WaitMeasured{1, late});
  Tell(MakePropose(2));
  EXPECT_EQ(core_.Status().path, std::nullopt);
  EXPECT_EQ(core_.Status().wait, std::nullopt);
  Feed(worker::WaitMeasured{1, late});  // came late
  EXPECT_EQ(core_.Status().wait, std::nullopt);
}

TEST_F(WorkerCoreTest, ShowsThatItsCheckpointsFailUntilOneIsThere) {
  Start();
  const auto fail = [&](int64_t step) {
    return Feed(worker::CheckpointFailed{{{1, step, 1}, "disk full"}, "j"});
  };
  EXPECT_EQ(core_.Status().checkpoint_failure, std::nullopt);
  EXPECT_EQ(fail(4), std::vector<std::string>{});
  fail(8);
  EXPECT_EQ(core_.Status().checkpoint_failure, (CheckpointFailure{{1, 8, 1}, "disk full"}));
  // Files that others are to publish are all that this worker has to do with it.
  Feed(worker::CheckpointDurable{{.tag = {1, 12, 1}, .part = 0, .parts = 2}, "j"});
  EXPECT_NE(core_.Status().checkpoint_failure, std::nullopt);
  Feed(worker::CheckpointDurable{{.tag = {1, 12, 1}, .part = 1, .parts = 2}, "j"});
  EXPECT_EQ(core_.Status().checkpoint_failure, std::nullopt);
  fail(16);
  Feed(worker::CheckpointCommitted{{.tag = {1, 20, 1}}, "j"});
  EXPECT_EQ(core_.Status().checkpoint_failure, std::nullopt);
  Feed(worker::CheckpointFailed{{{1, 24, 1}, "disk full"}, "another"});
  EXPECT_EQ(core_.Status().checkpoint_failure, std::nullopt);
  fail(24);
  Tell(EndJob{"j"});
  EXPECT_EQ(core_.Status().checkpoint_failure, std::nullopt);
}

TEST_F(WorkerCoreTest, EvictionIsFinal) {
  Start();
  EXPECT_THAT(Tell(Evicted{"silent", false}), ElementsAre("rejoin: silent"));
  EXPECT_THAT(Feed(worker::StepPrepared{1, 1}), IsEmpty());
  EXPECT_THAT(Tell(MakePropose(9)), IsEmpty());
}

TEST_F(WorkerCoreTest, ARefusedWorkerExits) {
  Feed(worker::SessionAttached{});
  EXPECT_THAT(Tell(Evicted{"another version", true}), ElementsAre("exit 1: another version"));
}

TEST_F(WorkerCoreTest, DrainsByPermission) {
  Start();
  EXPECT_THAT(Feed(worker::DrainRequested{}), Contains(::testing::HasSubstr("drain")));
  EXPECT_THAT(Tell(Release{"drained"}), ElementsAre("exit 0: drained"));
}

TEST_F(WorkerCoreTest, ReleaseWithoutARequestIsIgnored) {
  Start();
  Tell(Release{"drained"});
  EXPECT_FALSE(core_.left());
}

TEST_F(WorkerCoreTest, TheLastMemberWritesACheckpointBeforeItDrains) {
  Start();
  Step(1, 1, /*pause=*/true);
  Feed(worker::DrainRequested{});
  Tell(MakePropose(2, StateTag{1, 1, 1}));
  Feed(worker::Quiesced{2});
  Activate activate = MakeActivate(2, {1, 1, 1});
  activate.view.members.pop_back();
  activate.view.hold = true;
  Tell(activate);
  EXPECT_THAT(Feed(worker::MeshConnected{2}), Contains("drain-checkpoint 1.1@1"));
  EXPECT_EQ(core_.phase(), WorkerPhase::kPaused);
}

TEST_F(WorkerCoreTest, SealsFinishesAndGoesIdle) {
  Start();
  Step(1, 1, /*pause=*/true);
  EXPECT_THAT(Tell(Seal{1, {1, 1, 1}}), Contains("final-work 1.1@1"));
  EXPECT_EQ(core_.Status().stable, (StateTag{1, 1, 1}));
  FinalReport report;
  report.parameters_sha256 = "abc";
  EXPECT_THAT(Feed(worker::FinalWorkDone{1, report}),
              Contains(::testing::StartsWith("status finished")));
  EXPECT_EQ(core_.Status().final_report->parameters_sha256, "abc");
  EXPECT_THAT(Tell(EndJob{"j", JobState::kSucceeded, ""}), Contains("become-idle j succeeded"));
  EXPECT_FALSE(core_.Status().has_state);
}

TEST_F(WorkerCoreTest, AFailedJobOfALostCoordinatorDoesNotKeepAWorkerFromDraining) {
  Start();
  Feed(worker::SessionDetached{});
  Feed(worker::DrainRequested{});
  EXPECT_THAT(Feed(worker::JobFailed{"bad data"}), ElementsAre(::testing::StartsWith("exit 0")));
}

TEST_F(WorkerCoreTest, AFailureShowsTheLastStepApplied) {
  Start();
  Progress progress;
  progress.step = 1;
  Feed(worker::StepPrepared{1, 1});
  Feed(worker::RecordFormed{1, MakeRecord(1, 1)});
  Feed(worker::ProgressMeasured{progress});
  Feed(worker::StepApplied{1, {1, 1, 1}});
  EXPECT_FALSE(core_.Status().progress.has_value());
  EXPECT_THAT(Feed(worker::JobFailed{"the loss is not a number"}),
              Contains(::testing::StartsWith("status failed")));
  ASSERT_TRUE(core_.Status().progress.has_value());
  EXPECT_EQ(core_.Status().progress->step, 1);
  EXPECT_EQ(core_.Status().stable.step, 0);
}

TEST_F(WorkerCoreTest, AFailureIsShown) {
  Start();
  EXPECT_THAT(Feed(worker::JobFailed{"bad data"}),
              Contains(::testing::StartsWith("status failed")));
  EXPECT_EQ(core_.Status().failure, "bad data");
  EXPECT_THAT(Tell(EndJob{"j", JobState::kFailed, ""}), Contains("become-idle j failed"));
}

}  // namespace
}  // namespace muster
