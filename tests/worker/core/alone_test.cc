// Workers whose coordinator is gone, or does not know their job.
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

class AloneTest : public WorkerCoreTest {};

TEST_F(AloneTest, AnOrphanStopsKeepsItsStateAndComesBack) {
  Start();
  Step(1, 1);
  Feed(worker::SessionDetached{});
  EXPECT_THAT(Feed(worker::TimerFired{worker::TimerId::kOrphan}), Contains("quiesce 2"));
  EXPECT_EQ(core_.phase(), WorkerPhase::kOrphaned);
  // Nobody else is known to hold this step.
  EXPECT_THAT(Feed(worker::Quiesced{2}), ElementsAre("keep-state 1.1@1"));
  EXPECT_EQ(core_.Status().seen_epoch, 1u);  // no proposal was heard
  Feed(worker::SessionAttached{});
  Tell(MakePropose(2));
  EXPECT_THAT(Feed(worker::Quiesced{2}), Contains(::testing::HasSubstr("answered 2")));
}

TEST_F(AloneTest, MembersWithoutACoordinatorRestTogetherAndSealTheStep) {
  Start();
  Step(1, 1);
  Feed(worker::SessionDetached{});
  EXPECT_THAT(Feed(worker::TimerFired{worker::TimerId::kAlone}), IsEmpty());
  EXPECT_THAT(Feed(worker::StepPrepared{1, 2}), ElementsAre("contribute 2@1 pause"));
  Feed(worker::RecordFormed{1, MakeRecord(2, 1, /*pause=*/true)});
  EXPECT_THAT(Feed(worker::StepApplied{1, {1, 2, 1}}), ElementsAre("seal-among-members 1.2@1"));
  EXPECT_EQ(core_.Status().stable, (StateTag{1, 1, 1}));
  Feed(worker::MembersSealed{1, {1, 2, 1}});
  EXPECT_EQ(core_.Status().stable, (StateTag{1, 2, 1}));
  Feed(worker::TimerFired{worker::TimerId::kOrphan});
  EXPECT_THAT(Feed(worker::Quiesced{2}), ElementsAre("keep-state 1.2@1 sealed"));
}

TEST_F(AloneTest, MembersAtRestSealWhenTheCoordinatorStaysAway) {
  Start();
  Step(1, 1, /*pause=*/true);
  Feed(worker::SessionDetached{});
  EXPECT_THAT(Feed(worker::TimerFired{worker::TimerId::kAlone}),
              ElementsAre("seal-among-members 1.1@1"));
  EXPECT_THAT(Feed(worker::TimerFired{worker::TimerId::kAlone}), IsEmpty());
}

TEST_F(AloneTest, ASealOfAnOlderViewOrStateIsIgnored) {
  Start();
  Step(1, 1, /*pause=*/true);
  Feed(worker::SessionDetached{});
  Feed(worker::TimerFired{worker::TimerId::kAlone});
  Feed(worker::MembersSealed{2, {1, 1, 1}});
  Feed(worker::MembersSealed{1, {1, 2, 1}});
  EXPECT_EQ(core_.Status().stable, (StateTag{1, 0, 1}));
}

TEST_F(AloneTest, ACoordinatorThatIsBackInTimeChangesNothing) {
  Start();
  Step(1, 1);
  Feed(worker::SessionDetached{});
  Feed(worker::TimerFired{worker::TimerId::kAlone});
  Feed(worker::SessionAttached{});
  Tell(Welcome{.fleet_id = "f", .heartbeat_ms = 10, .lease_ms = 100, .orphan_timeout_ms = 1'000});
  EXPECT_THAT(Feed(worker::StepPrepared{1, 2}), ElementsAre("contribute 2@1"));
}

TEST_F(AloneTest, AJobTheCoordinatorDoesNotKnowEndsWhenItsStateIsKept) {
  Start();
  Step(1, 1);
  const EndJob end{"j", JobState::kFailed, "unknown", /*unknown=*/true};
  EXPECT_THAT(Tell(end), IsEmpty());
  EXPECT_THAT(Tell(end), IsEmpty());  // said again
  Feed(worker::StepPrepared{1, 2});
  Feed(worker::RecordFormed{1, MakeRecord(2, 1, /*pause=*/true)});
  EXPECT_THAT(Feed(worker::StepApplied{1, {1, 2, 1}}), Contains("seal-among-members 1.2@1"));
  Feed(worker::MembersSealed{1, {1, 2, 1}});
  EXPECT_THAT(Feed(worker::TimerFired{worker::TimerId::kOrphan}), Contains("quiesce 2"));
  EXPECT_THAT(Feed(worker::Quiesced{2}), Contains("keep-state 1.2@1 sealed"));
  EXPECT_THAT(Tell(end), IsEmpty());
  EXPECT_THAT(Feed(worker::StateKept{{1, 2, 1}}), Contains("become-idle j failed"));
  EXPECT_FALSE(core_.Status().has_state);
  EXPECT_EQ(core_.phase(), WorkerPhase::kIdle);
}

TEST_F(AloneTest, AnOrphansJobThatIsNotKnownEndsAtOnceIfItsStateIsKept) {
  Start();
  Step(1, 1);
  Feed(worker::SessionDetached{});
  Feed(worker::TimerFired{worker::TimerId::kOrphan});
  Feed(worker::Quiesced{2});
  Feed(worker::StateKept{{1, 1, 1}});
  Feed(worker::SessionAttached{});
  EXPECT_THAT(Tell(EndJob{"j", JobState::kFailed, "unknown", /*unknown=*/true}),
              Contains("become-idle j failed"));
}

TEST_F(AloneTest, AnAnswerToACoordinatorThatHasForgottenTheJobIsKept) {
  Start();
  Step(1, 1);
  Tell(MakePropose(2));
  const EndJob end{"j", JobState::kFailed, "unknown", /*unknown=*/true};
  EXPECT_THAT(Tell(end), Not(Contains(::testing::HasSubstr("become-idle"))));
  EXPECT_THAT(Feed(worker::Quiesced{2}), Contains("keep-state 1.1@1"));
  EXPECT_THAT(Feed(worker::StateKept{{1, 1, 1}}), Contains("become-idle j failed"));
}

TEST_F(AloneTest, ALearnersCopyOfAnUnknownJobIsDropped) {
  Feed(worker::SessionAttached{});
  Tell(Learn{.job = "j", .epoch = 1, .source = MakeMember(kPeer)});
  Feed(worker::LearnProgress{.attempt = 1, .applied = StateTag{1, 1, 1}});
  EXPECT_THAT(Tell(EndJob{"j", JobState::kFailed, "unknown", /*unknown=*/true}),
              Contains("become-idle j failed"));
}

TEST_F(AloneTest, WithoutACoordinatorAMemberDrainsWhenItHasKeptItsState) {
  Start();
  Step(1, 1);
  Feed(worker::SessionDetached{});
  EXPECT_THAT(Feed(worker::DrainRequested{}), IsEmpty());
  Step(2, 1);
  EXPECT_THAT(Feed(worker::TimerFired{worker::TimerId::kOrphan}), Contains("quiesce 2"));
  EXPECT_THAT(Feed(worker::Quiesced{2}), ElementsAre("keep-state 1.2@1"));
  EXPECT_THAT(Feed(worker::StateKept{{1, 2, 1}}), ElementsAre(::testing::StartsWith("exit 0")));
  EXPECT_TRUE(core_.left());
}

TEST_F(AloneTest, AnOrphanThatHasKeptItsStateDrainsAtOnce) {
  Start();
  Feed(worker::SessionDetached{});
  Feed(worker::TimerFired{worker::TimerId::kOrphan});
  Feed(worker::Quiesced{2});
  Feed(worker::StateKept{{1, 0, 1}});
  EXPECT_THAT(Feed(worker::DrainRequested{}), ElementsAre(::testing::StartsWith("exit 0")));
}

TEST_F(AloneTest, AnAnswerThatNobodyTakesDoesNotKeepAWorkerFromDraining) {
  Start();
  Tell(MakePropose(2));
  Feed(worker::Quiesced{2});
  Feed(worker::SessionDetached{});
  Feed(worker::TimerFired{worker::TimerId::kOrphan});
  EXPECT_EQ(core_.phase(), WorkerPhase::kQuiesced);
  // A decision may be on its way: the worker waits as long as a member would.
  const worker::Actions actions = core_.Handle(worker::DrainRequested{}, absl::UnixEpoch());
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(std::get<worker::SetTimer>(actions[0]).id, worker::TimerId::kOrphan);
  EXPECT_THAT(Feed(worker::TimerFired{worker::TimerId::kOrphan}),
              ElementsAre(::testing::StartsWith("exit 0")));
}

}  // namespace
}  // namespace muster
