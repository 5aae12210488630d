// Workers whose coordinator is gone, or does not know their job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/worker/core/worker_core_fixture.h"

namespace muster {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

class AloneTest : public WorkerCoreTest {
 protected:
  // When the member stops at the latest, if `event` sets that; the infinite future if it is called
  // off.
  std::optional<absl::Time> EndAfter(const worker::Event& event, absl::Time now) {
    std::optional<absl::Time> end;
    for (const worker::Action& action : core_.Handle(event, now)) {
      const auto* set = std::get_if<worker::SetTimer>(&action);
      const auto* cancel = std::get_if<worker::CancelTimer>(&action);
      if (set != nullptr && set->id == worker::TimerId::kOrphan) end = set->at;
      if (cancel != nullptr && cancel->id == worker::TimerId::kOrphan) end = absl::InfiniteFuture();
    }
    return end;
  }
};

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

// Leases lapse on a host that is busy; each time the member attaches anew and is told anew.
TEST_F(AloneTest, SessionsThatBreakDoNotPutOffTheEndOfAJobThatIsNotKnown) {
  Start();
  Step(1, 1);
  const absl::Time start = absl::UnixEpoch();
  const worker::DirectiveReceived unknown{EndJob{"j", JobState::kFailed, "", /*unknown=*/true}, 1};
  const worker::DirectiveReceived welcome{Welcome{.fleet_id = "f"}, 1};
  const std::optional<absl::Time> end = EndAfter(unknown, start);
  ASSERT_TRUE(end.has_value());
  EXPECT_LT(*end, start + Options().orphan_timeout);
  for (int second = 1; second < 100; ++second) {
    const absl::Time now = start + absl::Seconds(second);
    EXPECT_EQ(EndAfter(worker::SessionDetached{}, now), std::nullopt);
    EXPECT_EQ(EndAfter(worker::SessionAttached{}, now), std::nullopt);
    EXPECT_EQ(EndAfter(welcome, now), std::nullopt);
    EXPECT_EQ(EndAfter(unknown, now), end);
  }
}

TEST_F(AloneTest, WhoeverKnowsTheJobAfterAllMakesAViewOfThoseThatWereToStop) {
  Start();
  Step(1, 1);
  Tell(EndJob{"j", JobState::kFailed, "", /*unknown=*/true});
  Feed(worker::SessionDetached{});
  Feed(worker::SessionAttached{});
  Tell(Welcome{.fleet_id = "f"});
  Tell(MakePropose(2));
  Feed(worker::Quiesced{2});
  Tell(MakeActivate(2, {1, 1, 1}));
  Feed(worker::MeshConnected{2});
  EXPECT_EQ(core_.phase(), WorkerPhase::kRunning);
  EXPECT_THAT(Feed(worker::TimerFired{worker::TimerId::kOrphan}), IsEmpty());
  EXPECT_THAT(Feed(worker::StepPrepared{2, 2}), ElementsAre("contribute 2@2"));
}

// One of them died, so that the others wait for each other in vain.
TEST_F(AloneTest, MembersThatCannotMeetEndAJobThatIsNotKnownSoon) {
  Start();
  Step(1, 1);
  const absl::Time start = absl::UnixEpoch();
  const worker::DirectiveReceived unknown{EndJob{"j", JobState::kFailed, "", /*unknown=*/true}, 1};
  const worker::MeshFailed failed{1, 1, "reset"};
  const std::optional<absl::Time> end = EndAfter(unknown, start);
  const std::optional<absl::Time> sooner = EndAfter(failed, start);
  ASSERT_TRUE(end.has_value() && sooner.has_value());
  EXPECT_LT(*sooner, *end);
  EXPECT_THAT(Feed(worker::TimerFired{worker::TimerId::kOrphan}), Contains("quiesce 2"));
}

TEST_F(AloneTest, MembersWhoseMeshIsBrokenAlreadyEndAJobThatIsNotKnownSoon) {
  Start();
  Step(1, 1);
  const absl::Time start = absl::UnixEpoch();
  core_.Handle(worker::MeshFailed{1, 1, "reset"}, start);
  const std::optional<absl::Time> end = EndAfter(
      worker::DirectiveReceived{EndJob{"j", JobState::kFailed, "", /*unknown=*/true}, 1}, start);
  ASSERT_TRUE(end.has_value());
  EXPECT_LT(*end, start + absl::Seconds(2));
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
