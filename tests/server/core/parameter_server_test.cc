// Members that serve only: when they are taken into a view, what they own, and how they leave.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/control/placement.h"
#include "tests/server/core/fleet_script.h"

namespace muster {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Strategy Servers(int servers, int replicas = 1) {
  return {.sync = SyncPath::kParameterServer, .replicas = replicas, .servers = servers};
}

// Workers 1 and 2 and parameter servers 8 and 9 have taken step 7 in view 1.
void StartServed(FleetScript& fleet, int servers = 2) {
  fleet.Submit(1, 2, 100, 8, Servers(servers));
  fleet.JoinServer(8);
  fleet.JoinServer(9);
  fleet.Join(1);
  fleet.Join(2);
  for (uint64_t i : {1, 2, 8, 9}) fleet.Answer(i, 1);
  for (uint64_t i : {1, 2, 8, 9}) fleet.RunPart(i, 1, {1, 7, 1});
}

TEST(ParameterServerTest, AJobWithoutServersLeavesThemIdle) {
  FleetScript fleet;
  fleet.Submit(1, 2, 100);
  fleet.JoinServer(9);
  EXPECT_THAT(fleet.Join(1), ElementsAre("#1 <- welcome"))
      << "one worker is missing, whatever servers there are";
  EXPECT_THAT(fleet.Join(2), Contains("#2 <- propose 1"));
  fleet.Answer(1, 1);
  EXPECT_THAT(fleet.Answer(2, 1), Contains(HasSubstr("activate view 1 [#1 #2]")));
}

TEST(ParameterServerTest, TheFirstViewWaitsForServersAndPutsThemLast) {
  FleetScript fleet;
  fleet.Submit(1, 2, 100, 8, Servers(1));
  fleet.Join(3);
  EXPECT_THAT(fleet.Join(4), Not(Contains(HasSubstr("propose"))));
  // Two are here, one is wanted.
  EXPECT_THAT(fleet.JoinServer(2), Contains("#2 <- propose 1"));
  fleet.JoinServer(1);
  fleet.Answer(3, 1);
  fleet.Answer(2, 1);
  EXPECT_THAT(fleet.Answer(4, 1), Contains(HasSubstr("activate view 1 [#3 #4 #2]")));
}

TEST(ParameterServerTest, AfterAWhileTheJobStartsWithoutServers) {
  FleetScript fleet;
  fleet.Submit(1, 1, 100, 8, Servers(1));
  fleet.Join(1);
  EXPECT_THAT(fleet.Fire(coordinator::TimerKind::kStart), Contains("#1 <- propose 1"));
  EXPECT_THAT(fleet.Answer(1, 1), Contains(HasSubstr("activate view 1 [#1]")));
}

TEST(ParameterServerTest, AServerDoesNotTakeAWorkersPlace) {
  FleetScript fleet;
  fleet.Submit(1, 2, 100, /*max_workers=*/2, Servers(1));
  fleet.JoinServer(9);
  fleet.Join(1);
  fleet.Join(2);
  for (uint64_t i : {1, 2, 9}) fleet.Answer(i, 1);
  EXPECT_EQ(fleet.core().CurrentView()->workers(), 2);
  EXPECT_EQ(fleet.core().CurrentView()->servers(), 1);
}

TEST(ParameterServerTest, TheOtherServersGoOnFromTheirReplicas) {
  FleetScript fleet;
  StartServed(fleet);
  fleet.Close(8);
  fleet.Suspect(9, 8, 1);
  fleet.Answer(1, 2);
  fleet.Answer(2, 2);
  fleet.Answer(9, 2);
  fleet.Fire(coordinator::TimerKind::kReattach, 8);
  EXPECT_THAT(fleet.Fire(coordinator::TimerKind::kCollect),
              Contains(HasSubstr("activate view 2 [#1 #2 #9] from 1.7@1 up to 2 parameter servers, "
                                 "1 replica move from view 1: #1 #2 #9")));
  EXPECT_THAT(ShardOwners(*fleet.core().CurrentView()), ElementsAre(2));
}

TEST(ParameterServerTest, WithoutTheLastServerTheStateIsLostAndWorkersOwnItFromThenOn) {
  FleetScript fleet;
  StartServed(fleet, /*servers=*/1);
  fleet.Close(8);
  fleet.Suspect(1, 8, 1);
  fleet.Answer(1, 2);
  fleet.Answer(2, 2);
  fleet.Fire(coordinator::TimerKind::kReattach, 8);
  EXPECT_THAT(fleet.Fire(coordinator::TimerKind::kCollect),
              Contains(HasSubstr("persist dissolved")));
}

TEST(ParameterServerTest, ASwitchTakesServersThatAreReady) {
  FleetScript fleet;
  fleet.StartJob(2, 7);
  EXPECT_THAT(fleet.JoinServer(9), ElementsAre("#9 <- welcome")) << "there is no use for it";
  EXPECT_THAT(fleet.Feed(coordinator::StrategyRequested{"j", Servers(1)}),
              Contains("#9 <- learn from #1 (epoch 1)"));
  EXPECT_TRUE(fleet.IsSet(coordinator::TimerKind::kPauseBatch)) << "the switch waits a moment";
  EXPECT_THAT(fleet.Learned(9), Contains("#1 <- pause 1"));
  fleet.Run(1, 1, {1, 8, 1}, WorkerPhase::kPaused);
  EXPECT_THAT(fleet.Run(2, 1, {1, 8, 1}, WorkerPhase::kPaused),
              Contains("#9 <- propose 2 sealed 1.8@1"));
  fleet.Answer(1, 2);
  fleet.Answer(2, 2);
  EXPECT_THAT(fleet.Answer(9, 2),
              Contains(HasSubstr("activate view 2 [#1 #2 #9] from 1.8@1 up to 1 parameter server, "
                                 "1 replica move from view 1: #1 #2")));
}

TEST(ParameterServerTest, ASwitchThatWaitsInVainGoesOnWithoutServers) {
  FleetScript fleet;
  fleet.StartJob(2, 7);
  fleet.JoinServer(9);
  fleet.Feed(coordinator::StrategyRequested{"j", Servers(1)});
  EXPECT_THAT(fleet.Fire(coordinator::TimerKind::kPauseBatch), Contains("#1 <- pause 1"));
  fleet.Run(1, 1, {1, 8, 1}, WorkerPhase::kPaused);
  fleet.Run(2, 1, {1, 8, 1}, WorkerPhase::kPaused);
  fleet.Answer(1, 2);
  EXPECT_THAT(fleet.Answer(2, 2), Contains(HasSubstr("activate view 2 [#1 #2] from 1.8@1 up to 1 "
                                                     "parameter server")));
  for (uint64_t i : {1, 2}) fleet.RunPart(i, 2, {1, 9, 2});
  EXPECT_THAT(fleet.Learned(9), Contains("#1 <- pause 2")) << "it comes later";
}

TEST(ParameterServerTest, AServerWithoutUseGivesWhatItHoldsAndIsIdleAgain) {
  FleetScript fleet;
  StartServed(fleet);
  fleet.Feed(coordinator::StrategyRequested{"j", Strategy()});
  for (uint64_t i : {1, 2, 8, 9}) fleet.RunPart(i, 1, {1, 8, 1}, WorkerPhase::kPaused);
  for (uint64_t i : {1, 2, 8}) fleet.Answer(i, 2);
  // First a view in which they give, on hold.
  EXPECT_THAT(fleet.Answer(9, 2),
              Contains(HasSubstr(
                  "activate view 2 [#1 #2 #8 #9] from 1.8@1 hold move from view 1: #1 #2 #8 #9")));
  for (uint64_t i : {1, 2, 8, 9}) fleet.Run(i, 2, {1, 8, 1}, WorkerPhase::kPaused);
  for (uint64_t i : {1, 2, 8}) fleet.Answer(i, 3);
  const Lines decided = fleet.Answer(9, 3);
  EXPECT_THAT(decided, Contains(HasSubstr("activate view 3 [#1 #2] from 1.8@1")));
  EXPECT_THAT(decided, Not(Contains(HasSubstr("evict"))));
  // They are needed until everybody is in the new view (rule 9).
  EXPECT_THAT(fleet.Run(1, 3, {1, 8, 1}), Not(Contains(HasSubstr("dismiss"))));
  const Lines active = fleet.Run(2, 3, {1, 8, 1});
  EXPECT_THAT(active, Contains("#8 <- dismiss from view 3"));
  EXPECT_THAT(active, Contains("#9 <- dismiss from view 3"));
}

}  // namespace
}  // namespace muster
