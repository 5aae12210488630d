// Parts of the state move when the view changes, and nothing is freed too early (rule 8).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/core/worker_core_fixture.h"

namespace muster {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class MoveTest : public WorkerCoreTest {
 protected:
  // View `epoch` in shards, from the parts or the whole of `source`; both members give.
  static Activate MakeMove(Epoch epoch, StateTag resume, const View& source) {
    Activate activate = MakeActivate(epoch, resume);
    activate.view.strategy.stage = 1;
    activate.move = MoveSource{source, {kSelf, kPeer}};
    return activate;
  }

  // Runs view 1 for a step, then rests at it and answers proposal 2.
  View RestAndAnswer() {
    Start();
    const View first = *core_.view();
    Step(1, 1, /*pause=*/true);
    Tell(MakePropose(2, StateTag{1, 1, 1}));
    Feed(worker::Quiesced{2});
    return first;
  }
};

TEST_F(MoveTest, StepsBeginWhenAllAreKnownToHoldTheirParts) {
  const View first = RestAndAnswer();
  EXPECT_TRUE(core_.Status().holdings.whole);
  EXPECT_THAT(Tell(MakeMove(2, {1, 1, 1}, first)), Contains("connect-mesh 2"));
  EXPECT_THAT(Feed(worker::MeshConnected{2}), Contains("move-ranges 2 gives"));
  EXPECT_THAT(Feed(worker::RangesMoved{2}), Contains("seal-move 2"));
  // Until then it holds both, and says so.
  EXPECT_EQ(core_.Status().holdings, (Holdings{.next = 2, .whole = true}));
  EXPECT_EQ(core_.phase(), WorkerPhase::kActivating);
  const std::vector<std::string> sealed = Feed(worker::MoveSealed{2});
  EXPECT_THAT(sealed, Contains("adopt-part 2"));
  EXPECT_THAT(sealed, Contains("run-steps 2 from 2"));
  EXPECT_EQ(core_.Status().holdings, (Holdings{.map = 2}));
}

TEST_F(MoveTest, AMoveThatIsOvertakenKeepsOldAndNew) {
  const View first = RestAndAnswer();
  Tell(MakeMove(2, {1, 1, 1}, first));
  Feed(worker::MeshConnected{2});
  Feed(worker::RangesMoved{2});
  Tell(MakePropose(3));
  EXPECT_THAT(Feed(worker::MoveSealed{2}), Not(Contains("adopt-part 2"))) << "answered meanwhile";
  Feed(worker::Quiesced{3});
  EXPECT_EQ(core_.Status().holdings, (Holdings{.next = 2, .whole = true}));
  // The next view goes on from the new parts; the old ones are of no more use.
  View second = MakeMove(2, {1, 1, 1}, first).view;
  Tell(MakeMove(3, {1, 1, 1}, second));
  EXPECT_EQ(core_.Status().holdings, (Holdings{.map = 2}));
  EXPECT_THAT(Feed(worker::MeshConnected{3}), Contains("move-ranges 3 gives"));
}

TEST_F(MoveTest, WhoGivesNothingDropsWhatItHasAndReceives) {
  const View first = RestAndAnswer();
  Activate activate = MakeMove(2, {1, 1, 1}, first);
  activate.move->givers = {kPeer};
  Tell(activate);
  EXPECT_FALSE(core_.Status().has_state);
  EXPECT_THAT(Feed(worker::MeshConnected{2}), Contains("move-ranges 2"));
  Feed(worker::RangesMoved{2});
  EXPECT_TRUE(core_.Status().has_state);
  EXPECT_EQ(core_.Status().applied, (StateTag{1, 1, 1}));
}

TEST_F(MoveTest, WhoIsToGiveWhatItHasNotLeaves) {
  const View first = RestAndAnswer();
  View other = first;
  other.epoch = 7;
  other.strategy.stage = 1;
  EXPECT_THAT(Tell(MakeMove(2, {1, 1, 1}, other)), Contains(HasSubstr("rejoin: view 2")));
}

TEST_F(MoveTest, APreparedStepIsRolledForwardBeforeItMoves) {
  Start();
  const View first = *core_.view();
  Feed(worker::StepPrepared{1, 1});
  Tell(MakePropose(2));
  Feed(worker::Quiesced{2});
  Activate activate = MakeMove(2, {1, 1, 1}, first);
  activate.roll_forward = MakeRecord(1, 1);
  EXPECT_THAT(Tell(activate), Contains("roll-forward 1.1@1"));
  EXPECT_THAT(Feed(worker::MeshConnected{2}), Not(Contains(HasSubstr("move-ranges"))));
  EXPECT_THAT(Feed(worker::StateReady{2, {1, 1, 1}}), Contains("move-ranges 2 gives"));
}

}  // namespace
}  // namespace muster
