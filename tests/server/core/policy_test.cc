// A job whose strategy the coordinator chooses: when it does, and what it makes of restarts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/core/fleet_script.h"

namespace muster {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kElements = 1 << 20;

CoordinatorOptions Options() {
  CoordinatorOptions options;
  options.strategy_steps = 5;
  return options;
}

class PolicyTest : public testing::Test {
 protected:
  void Submit(int start_workers, int min_workers = 1, std::vector<StrategySwitch> switches = {}) {
    coordinator::JobSubmitted submitted;
    submitted.plan.id = "j";
    submitted.plan.min_workers = min_workers;
    submitted.plan.start_workers = start_workers;
    submitted.plan.max_workers = 8;
    submitted.plan.total_steps = 1000;
    submitted.plan.strategy.replicas = replicas_;
    submitted.plan.automatic = true;
    submitted.plan.switches = std::move(switches);
    fleet_.Feed(submitted);
  }

  // A member on a host of its own that knows the job's size as soon as it has prepared for it.
  Lines Join(uint64_t member, double bytes_per_element = 0, MemberRole role = MemberRole::kWorker) {
    fleet_.status(member).state_size = StateSize{.elements = kElements,
                                                 .largest_block = 1 << 14,
                                                 .bucket = 1 << 18,
                                                 .slots = 2,
                                                 .parameter_bytes = 2,
                                                 .gradient_bytes = 2};
    const auto bytes = static_cast<int64_t>(bytes_per_element * kElements);
    return fleet_.Join(member, (role == MemberRole::kWorker ? "w" : "p") + std::to_string(member),
                       role, {.process_bytes = bytes});
  }

  // Links on which servers save a fifth of the time, or nothing.
  void Measure(uint64_t member, bool servers_pay) {
    fleet_.status(member).links = LinkSpeeds{.ranks = 4,
                                             .latency_seconds = 1e-5,
                                             .wire_seconds = 1e-9,
                                             .one_way_seconds = servers_pay ? 0.5e-9 : 1e-9};
  }

  // Workers 1..n have taken `step` in view 1.
  void Start(int workers, Step step, double bytes_per_element = 0) {
    Submit(workers);
    for (int i = 1; i <= workers; ++i) Join(static_cast<uint64_t>(i), bytes_per_element);
    for (int i = 1; i <= workers; ++i) fleet_.Answer(static_cast<uint64_t>(i), 1);
    for (int i = 1; i <= workers; ++i) Take(static_cast<uint64_t>(i), 1, step);
  }

  // `member` has taken a step in a view, by whatever strategy that has.
  Lines Take(uint64_t member, Epoch epoch, Step step, WorkerPhase phase = WorkerPhase::kRunning) {
    const StateTag tag{1, step, step == 0 ? 0 : epoch};
    return View().strategy.sharded() ? fleet_.RunPart(member, epoch, tag, phase)
                                     : fleet_.Run(member, epoch, tag, phase);
  }

  Lines PauseAll(const std::vector<uint64_t>& members, Epoch epoch, Step step) {
    Lines lines;
    for (uint64_t member : members) lines = Take(member, epoch, step, WorkerPhase::kPaused);
    return lines;
  }
  Lines AnswerAll(const std::vector<uint64_t>& members, Epoch epoch) {
    Lines lines;
    for (uint64_t member : members) lines = fleet_.Answer(member, epoch);
    return lines;
  }

  const muster::View& View() { return *fleet_.core().CurrentView(); }
  std::string Reason() { return fleet_.core().FindJob("j")->strategy_reason; }

  int32_t replicas_ = 0;
  FleetScript fleet_{Options()};
};

TEST_F(PolicyTest, TheFirstViewHasTheFirstStrategyThatFits) {
  Start(4, 0);
  EXPECT_EQ(View().strategy.stage, 0);
  EXPECT_THAT(Reason(), HasSubstr("the simplest that fits"));
}

TEST_F(PolicyTest, LittleMemoryMakesTheFirstViewShard) {
  Start(4, 0, /*bytes_per_element=*/7);
  EXPECT_EQ(View().strategy.stage, 2);
  EXPECT_EQ(View().strategy.replicas, 0);
  EXPECT_TRUE(fleet_.core().FindJob("j")->strategy.automatic);
}

TEST_F(PolicyTest, AJobThatNoStrategyFitsFailsWithTheBytes) {
  Submit(2);
  Join(1, 2);
  Join(2, 2);
  fleet_.Answer(1, 1);
  fleet_.Answer(2, 1);
  EXPECT_THAT(fleet_.core().FindJob("j")->reason, HasSubstr("no strategy fits into memory"));
  EXPECT_EQ(fleet_.core().FindJob("j")->state, JobState::kFailed);
}

TEST_F(PolicyTest, IdleServersAreAskedAndLeftOutWhereTheyAreNotNeeded) {
  Submit(2);
  Join(9, 0, MemberRole::kParameterServer);
  Join(1);
  EXPECT_THAT(Join(2), Contains("#9 <- propose 1"));
  EXPECT_THAT(AnswerAll({1, 2, 9}, 1), Contains(HasSubstr("activate view 1 [#1 #2] from")));
}

TEST_F(PolicyTest, ServersAreTakenIntoTheFirstViewWhereNothingElseFits) {
  Submit(2);
  Join(9, 0, MemberRole::kParameterServer);
  Join(1, 4);
  Join(2, 4);
  EXPECT_THAT(AnswerAll({1, 2, 9}, 1), Contains(HasSubstr("activate view 1 [#1 #2 #9] from")));
  EXPECT_TRUE(View().strategy.serves());
}

TEST_F(PolicyTest, WhereServersPayTheyAreTakenWhenTheyAreReadyAndTheLinksAreMeasured) {
  Start(4, 7);
  EXPECT_THAT(Join(8, 0, MemberRole::kParameterServer), Contains(HasSubstr("#8 <- learn")));
  Join(9, 0, MemberRole::kParameterServer);
  fleet_.Learned(8);
  EXPECT_THAT(fleet_.Learned(9), Not(Contains(HasSubstr("pause")))) << "nothing was measured";
  Measure(1, /*servers_pay=*/true);
  EXPECT_THAT(Take(1, 1, 8), Contains("#1 <- pause 1"));
  EXPECT_THAT(PauseAll({1, 2, 3, 4}, 1, 9), Contains("#9 <- propose 2 sealed 1.9@1"));
  EXPECT_THAT(AnswerAll({1, 2, 3, 4, 8, 9}, 2),
              Contains(HasSubstr("activate view 2 [#1 #2 #3 #4 #8 #9] from 1.9@1 up to 2 parameter "
                                 "servers and the workers, 0 replicas move from view 1")));
  EXPECT_THAT(Reason(), HasSubstr("up to 2 parameter servers and the workers"));
  EXPECT_THAT(Reason(), HasSubstr("of communication a step"));
}

TEST_F(PolicyTest, ServersThatDoNotPayStayIdle) {
  Start(4, 7);
  Measure(1, /*servers_pay=*/false);
  Take(1, 1, 8);
  Join(8, 0, MemberRole::kParameterServer);
  EXPECT_THAT(fleet_.Learned(8), ElementsAre());
  EXPECT_THAT(Take(1, 1, 100), ElementsAre());
}

TEST_F(PolicyTest, ForSpeedNothingChangesBeforeTheStrategyHasLasted) {
  Start(4, 1);
  Join(8, 0, MemberRole::kParameterServer);
  Join(9, 0, MemberRole::kParameterServer);
  fleet_.Learned(8);
  fleet_.Learned(9);
  Measure(1, /*servers_pay=*/true);
  EXPECT_THAT(Take(1, 1, 4), Not(Contains(HasSubstr("pause"))));
  EXPECT_THAT(Take(1, 1, 5), Contains("#1 <- pause 1"));
  PauseAll({1, 2, 3, 4}, 1, 6);
  AnswerAll({1, 2, 3, 4, 8, 9}, 2);
  ASSERT_TRUE(View().strategy.mixed);
  // Measured anew, servers do not pay: that is believed after twice as many steps.
  for (uint64_t i : {1, 2, 3, 4, 8, 9}) Take(i, 2, 6);
  Measure(1, /*servers_pay=*/false);
  EXPECT_THAT(Take(1, 2, 15), Not(Contains(HasSubstr("pause"))));
  EXPECT_THAT(Take(1, 2, 16), Contains("#1 <- pause 2"));
}

TEST_F(PolicyTest, ADeathThatLeavesTooLittleMemoryChangesTheStrategyInTheSameView) {
  replicas_ = 1;
  // Stage 1 takes 4 + 12 * 2 / 4 bytes an element of four workers and 4 + 12 * 2 / 3 of three.
  Start(4, 7, /*bytes_per_element=*/11.2);
  ASSERT_EQ(View().strategy.stage, 1);
  fleet_.Close(4);
  fleet_.Suspect(1, 4, 1);
  AnswerAll({1, 2, 3}, 2);
  fleet_.Fire(coordinator::TimerKind::kReattach, 4);
  EXPECT_THAT(
      fleet_.Fire(coordinator::TimerKind::kCollect),
      Contains(HasSubstr("activate view 2 [#1 #2 #3] from 1.7@1 stage 3, 1 replica move from")));
  EXPECT_THAT(Reason(), HasSubstr("stage 1, 1 replica does not fit (worker w1 would take 12."));
}

TEST_F(PolicyTest, WhereNothingFitsAfterADeathTheJobHoldsItsStateUntilSomebodyJoins) {
  replicas_ = 1;
  Start(3, 7, /*bytes_per_element=*/13);
  ASSERT_EQ(View().strategy.stage, 1);  // 12 * 2 / 3 + 4 bytes an element
  fleet_.Close(3);
  fleet_.Suspect(1, 3, 1);
  AnswerAll({1, 2}, 2);
  fleet_.Fire(coordinator::TimerKind::kReattach, 3);
  EXPECT_THAT(fleet_.Fire(coordinator::TimerKind::kCollect),
              Contains(HasSubstr("activate view 2 [#1 #2] from 1.7@1 hold stage 1")));
  EXPECT_EQ(fleet_.core().FindJob("j")->state, JobState::kWaiting);
  EXPECT_THAT(fleet_.core().FindJob("j")->reason, HasSubstr("no strategy fits into memory"));
  for (uint64_t i : {1, 2}) fleet_.RunPart(i, 2, {1, 7, 1}, WorkerPhase::kPaused);
  Join(4, 13);
  EXPECT_THAT(fleet_.Learned(4), Contains("#4 <- propose 3 sealed 1.7@1"));
  EXPECT_THAT(AnswerAll({1, 2, 4}, 3),
              Contains(HasSubstr("activate view 3 [#1 #2 #4] from 1.7@1 stage 1")));
  EXPECT_EQ(fleet_.core().FindJob("j")->state, JobState::kRunning);
}

TEST_F(PolicyTest, AJobThatStartsAgainWaitsForThoseWithoutWhomNothingFits) {
  Start(4, 7, /*bytes_per_element=*/8);
  ASSERT_EQ(View().strategy.stage, 1);
  // Without replicas the death of two leaves too few shards.
  fleet_.Close(3);
  fleet_.Close(4);
  fleet_.Suspect(1, 3, 1);
  AnswerAll({1, 2}, 2);
  fleet_.Fire(coordinator::TimerKind::kReattach, 3);
  fleet_.Fire(coordinator::TimerKind::kReattach, 4);
  EXPECT_THAT(fleet_.Fire(coordinator::TimerKind::kCollect),
              Contains(HasSubstr("persist dissolved")));
  // Those that were left join anew; stage 3 of two takes 8 bytes an element and more.
  Join(11, 8);
  EXPECT_THAT(Join(12, 8), Not(Contains(HasSubstr("propose"))));
  EXPECT_EQ(fleet_.core().FindJob("j")->state, JobState::kWaiting);
  EXPECT_THAT(fleet_.core().FindJob("j")->reason, HasSubstr("no strategy fits into memory"));
  EXPECT_THAT(Join(13, 8), Contains("#13 <- propose 3"));
  AnswerAll({11, 12, 13}, 3);
  EXPECT_EQ(fleet_.core().FindJob("j")->state, JobState::kRunning);
  EXPECT_EQ(View().strategy.stage, 2);
}

TEST_F(PolicyTest, AManualSwitchEndsThePolicyAndAnotherBeginsIt) {
  Start(4, 7);
  EXPECT_THAT(fleet_.Feed(coordinator::StrategyRequested{"j", {.stage = 3, .replicas = 0}}),
              Contains("#1 <- pause 1"));
  EXPECT_FALSE(fleet_.core().FindJob("j")->strategy.automatic);
  PauseAll({1, 2, 3, 4}, 1, 8);
  AnswerAll({1, 2, 3, 4}, 2);
  ASSERT_EQ(View().strategy.stage, 3);
  for (uint64_t i : {1, 2, 3, 4}) Take(i, 2, 20);
  Measure(1, false);
  EXPECT_THAT(Take(1, 2, 21), ElementsAre()) << "nobody chooses";
  fleet_.Feed(coordinator::StrategyRequested{"j", {.replicas = 0}, /*automatic=*/true});
  EXPECT_THAT(Take(1, 2, 22), ElementsAre()) << "it was told to pause when the policy began";
  PauseAll({1, 2, 3, 4}, 2, 22);
  AnswerAll({1, 2, 3, 4}, 3);
  EXPECT_EQ(View().strategy.stage, 0);
}

TEST_F(PolicyTest, TheJobsScheduleMayEndAndBeginThePolicy) {
  Submit(2, 1,
         {{.after = 3, .strategy = {.stage = 2, .replicas = 0}},
          {.after = 6, .strategy = {.replicas = 0}, .automatic = true}});
  Join(1);
  Join(2);
  AnswerAll({1, 2}, 1);
  EXPECT_EQ(View().strategy.stage, 0);
  PauseAll({1, 2}, 1, 3);
  AnswerAll({1, 2}, 2);
  EXPECT_EQ(View().strategy.stage, 2);
  EXPECT_FALSE(fleet_.core().FindJob("j")->strategy.automatic);
  PauseAll({1, 2}, 2, 6);
  EXPECT_THAT(AnswerAll({1, 2}, 3), Contains("changed to view 3: switch")) << "nobody has left";
  EXPECT_EQ(View().epoch, 3u);
  EXPECT_EQ(View().strategy.stage, 2) << "nothing was measured, and it fits";
  EXPECT_TRUE(fleet_.core().FindJob("j")->strategy.automatic);
}

// Rule 13: what was decided stands, what was not is chosen anew.
TEST_F(PolicyTest, ARestartedCoordinatorGoesOnByTheStrategyInForce) {
  Start(4, 7, /*bytes_per_element=*/7);
  ASSERT_EQ(View().strategy.stage, 2);
  FleetScript again(Options(), fleet_.core().persistent());
  ASSERT_NE(again.core().CurrentView(), nullptr);
  EXPECT_EQ(again.core().CurrentView()->strategy.stage, 2);
  for (uint64_t i : {1, 2, 3, 4}) {
    again.status(i) = fleet_.status(i);
    again.Join(i, "", MemberRole::kWorker, {.process_bytes = 7 * kElements});
    EXPECT_THAT(again.RunPart(i, 1, {1, 9, 1}), ElementsAre());
  }
  EXPECT_TRUE(again.core().FindJob("j")->strategy.automatic);
  EXPECT_EQ(again.core().persistent().jobs.front().strategy_since, 0);
}

TEST_F(PolicyTest, AManualSwitchToWhatDoesNotFitIsRefused) {
  Start(4, 7, /*bytes_per_element=*/7);
  EXPECT_TRUE(fleet_.core().CheckStrategyFits("j", {.stage = 3, .replicas = 0}).ok());
  const absl::Status refused = fleet_.core().CheckStrategyFits("j", Strategy());
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("replicated does not fit: worker w"));
  EXPECT_TRUE(fleet_.core().CheckStrategyFits("another", Strategy()).ok());
}

TEST_F(PolicyTest, SharedMemoryByNameIsRefusedToMembersOfSeveralHosts) {
  fleet_.hosts = {{1, "a"}, {2, "b"}};
  Start(2, 7);
  for (const Strategy& strategy : {Strategy{.transport = SyncTransport::kSharedMemory},
                                   Strategy{.algorithm = SyncAlgorithm::kWindow}}) {
    const absl::Status refused = fleet_.core().CheckStrategyFits("j", strategy);
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(refused.message(), HasSubstr("w1 is on a and w2 on b"));
  }
  EXPECT_TRUE(fleet_.core().CheckStrategyFits("j", Strategy()).ok());
}

TEST_F(PolicyTest, ExplainsWithEverybodyWhoIsHere) {
  EXPECT_EQ(fleet_.core().ExplainStrategy("j").status().code(),
            absl::StatusCode::kFailedPrecondition);
  Start(4, 7);
  Join(8, 0, MemberRole::kParameterServer);
  const absl::StatusOr<StrategyChoice> choice = fleet_.core().ExplainStrategy("j");
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->crew, (CrewSize{.workers = 4, .servers = 1}));
  EXPECT_EQ(choice->candidates.size(), 6u);
  EXPECT_EQ(choice->strategy, View().strategy);
}

TEST_F(PolicyTest, WithoutWorkersThereIsNothingToExplain) {
  Submit(1);
  Join(1);
  EXPECT_THAT(fleet_.core().ExplainStrategy("j").status().message(),
              HasSubstr("no worker has said yet"));
  fleet_.Answer(1, 1);
  Take(1, 1, 7);
  ASSERT_TRUE(fleet_.core().ExplainStrategy("j").ok());
  fleet_.Close(1);
  fleet_.Fire(coordinator::TimerKind::kReattach, 1);
  fleet_.Fire(coordinator::TimerKind::kLease, 1);
  fleet_.Fire(coordinator::TimerKind::kOrphan);
  const absl::Status status = fleet_.core().ExplainStrategy("j").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("none of the job's workers is here"));
}

}  // namespace
}  // namespace muster
