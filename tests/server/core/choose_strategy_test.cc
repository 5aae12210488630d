// What the policy makes of memory and links.
#include "server/core/choose_strategy.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kElements = 1 << 20;

StateSize Size() {
  return {.elements = kElements,
          .largest_block = 1 << 14,
          .bucket = 1 << 18,
          .slots = 2,
          .parameter_bytes = 2,
          .gradient_bytes = 2};
}

// 1 GB/s in both directions at once; `shared_directions`: at most 1 GB/s together.
LinkSpeeds Links(bool shared_directions = false) {
  return {.ranks = 4,
          .latency_seconds = 1e-5,
          .message_seconds = 1e-6,
          .wire_seconds = 1e-9,
          .one_way_seconds = shared_directions ? 0.5e-9 : 1e-9,
          .reduce_seconds = 1e-11};
}

ChoiceInputs Inputs(int workers, int servers = 0) {
  ChoiceInputs inputs;
  inputs.size = Size();
  for (int i = 0; i < workers + servers; ++i) {
    const bool serves = i >= workers;
    inputs.crew.push_back({.name = absl::StrCat(serves ? "p" : "w", i),
                           .role = serves ? MemberRole::kParameterServer : MemberRole::kWorker,
                           .host = absl::StrCat("host-", i)});
  }
  inputs.base.replicas = 0;
  return inputs;
}

void LimitWorkers(ChoiceInputs* inputs, double bytes_per_element) {
  for (CrewMember& member : inputs->crew) {
    if (member.role != MemberRole::kWorker) continue;
    member.memory.process_bytes = static_cast<int64_t>(bytes_per_element * kElements);
  }
}

// Four workers on two hosts, two and two.
ChoiceInputs OnTwoHosts() {
  ChoiceInputs inputs = Inputs(4);
  for (size_t i = 0; i < inputs.crew.size(); ++i) inputs.crew[i].host = i < 2 ? "a" : "b";
  return inputs;
}

Strategy Stage(int32_t stage) { return {.stage = stage, .replicas = 0}; }
Strategy Served(int32_t servers, bool mixed) {
  return {.sync = SyncPath::kParameterServer, .replicas = 0, .servers = servers, .mixed = mixed};
}

const StrategyCandidate& Find(const StrategyChoice& choice, const Strategy& strategy) {
  for (const StrategyCandidate& each : choice.candidates) {
    if (each.strategy == strategy) return each;
  }
  ADD_FAILURE() << ToString(strategy) << " is no candidate";
  return choice.candidates.front();
}

TEST(ChooseStrategyTest, TheSimplestIfNothingIsKnown) {
  const StrategyChoice choice = ChooseStrategy(Inputs(4, 2));
  EXPECT_EQ(choice.strategy, Stage(0));
  EXPECT_EQ(choice.cause, ChoiceCause::kSimplest);
  EXPECT_EQ(choice.candidates.size(), 6u);
  EXPECT_EQ(choice.candidates.front().strategy, choice.strategy);
  for (const StrategyCandidate& each : choice.candidates) {
    EXPECT_TRUE(each.fits());
    EXPECT_FALSE(each.seconds.has_value());
    EXPECT_GT(each.worker_bytes, 0);
  }
}

// 16, 4 + 12 / 4, 2 + 14 / 4 and 16 / 4 bytes an element, and buffers of some blocks.
TEST(ChooseStrategyTest, TheFirstStageThatFitsIntoMemory) {
  const std::pair<double, int> cases[] = {{16.5, 0}, {16, 1}, {7.5, 1}, {7, 2}, {5.9, 2}, {5.5, 3}};
  for (const auto& [bytes_per_element, stage] : cases) {
    ChoiceInputs inputs = Inputs(4);
    LimitWorkers(&inputs, bytes_per_element);
    EXPECT_EQ(ChooseStrategy(inputs).strategy, Stage(stage)) << bytes_per_element;
  }
}

TEST(ChooseStrategyTest, OneMemberWithLittleMemoryDecidesForAll) {
  ChoiceInputs inputs = Inputs(4);
  inputs.crew[2].memory.process_bytes = 7 * kElements;
  const StrategyChoice choice = ChooseStrategy(inputs);
  EXPECT_EQ(choice.strategy, Stage(2));
  EXPECT_THAT(Find(choice, Stage(0)).obstacle, HasSubstr("worker w2 would take 16"));
  EXPECT_THAT(Find(choice, Stage(0)).obstacle, HasSubstr("may take 7 MiB"));
}

TEST(ChooseStrategyTest, MembersOfAHostShareWhatTheFirstOfThemFound) {
  ChoiceInputs inputs = Inputs(4);
  for (CrewMember& member : inputs.crew) member.host = "one";
  // What later ones saw is what the first had left.
  inputs.crew[0].memory.host_bytes = 4 * 17 * kElements;
  inputs.crew[3].memory.host_bytes = kElements;
  EXPECT_EQ(ChooseStrategy(inputs).strategy, Stage(0));
  inputs.crew[0].memory.host_bytes = 4 * 8 * kElements;
  const StrategyChoice choice = ChooseStrategy(inputs);
  EXPECT_EQ(choice.strategy, Stage(1));
  EXPECT_THAT(Find(choice, Stage(0)).obstacle, HasSubstr("4 members on host one would take 6"));
  inputs.crew[3].memory = {};
  inputs.crew[1].host = inputs.crew[2].host = inputs.crew[3].host = "";
  EXPECT_EQ(ChooseStrategy(inputs).strategy, Stage(0)) << "hosts without a name are different ones";
}

TEST(ChooseStrategyTest, TheFastestOfThoseThatFitAndTheSimplestOfEquals) {
  ChoiceInputs inputs = Inputs(4);
  inputs.links = Links();
  StrategyChoice choice = ChooseStrategy(inputs);
  EXPECT_EQ(choice.strategy, Stage(0)) << "an all-reduce takes as long as its two halves";
  EXPECT_EQ(choice.cause, ChoiceCause::kFastest);
  const double replicated = *Find(choice, Stage(0)).seconds;
  // 2 (n - 1) / n and, in stage 3, 3 (n - 1) / n of 2 bytes an element.
  EXPECT_NEAR(replicated, 2 * 0.75 * 2 * kElements * 1e-9, 0.1 * replicated);
  EXPECT_NEAR(*Find(choice, Stage(2)).seconds, replicated, 0.05 * replicated);
  EXPECT_NEAR(*Find(choice, Stage(3)).seconds, 1.5 * replicated, 0.1 * replicated);
  LimitWorkers(&inputs, 7.5);
  choice = ChooseStrategy(inputs);
  EXPECT_EQ(choice.strategy, Stage(1));
}

TEST(ChooseStrategyTest, SpareServersAreOfUseWhereDirectionsShareALink) {
  ChoiceInputs inputs = Inputs(4, 2);
  inputs.links = Links(/*shared_directions=*/true);
  const StrategyChoice choice = ChooseStrategy(inputs);
  EXPECT_EQ(choice.strategy, Served(2, /*mixed=*/true));
  // Jiang et al.: 2 n (n - 1) / (n^2 + k n - 2 k) of the vector's bytes, against 2 (n - 1) / n.
  EXPECT_NEAR(*choice.candidates.front().seconds / *Find(choice, Stage(0)).seconds,
              (24.0 / 20) / 1.5, 0.05);
  EXPECT_GT(*Find(choice, Served(2, false)).seconds, *Find(choice, Stage(0)).seconds)
      << "two servers that own everything are a bottleneck";
}

TEST(ChooseStrategyTest, ServersAreOfNoUseForSpeedWhereDirectionsAreIndependent) {
  ChoiceInputs inputs = Inputs(4, 4);
  inputs.links = Links();
  EXPECT_EQ(ChooseStrategy(inputs).strategy, Stage(0));
  inputs.links->one_way_seconds = 0;  // not measured
  EXPECT_EQ(ChooseStrategy(inputs).strategy, Stage(0));
}

TEST(ChooseStrategyTest, AServerOnAWorkersHostAddsNoLink) {
  ChoiceInputs inputs = Inputs(4, 2);
  inputs.links = Links(/*shared_directions=*/true);
  inputs.crew[4].host = inputs.crew[0].host;
  inputs.crew[5].host = inputs.crew[1].host;
  EXPECT_EQ(ChooseStrategy(inputs).strategy, Stage(0));
}

TEST(ChooseStrategyTest, InsideTheHostsFirstServersGetOneContributionAHost) {
  ChoiceInputs inputs = Inputs(4, 1);
  inputs.links = Links();
  for (const int worker : {0, 1}) inputs.crew[worker].host = "one";
  for (const int worker : {2, 3}) inputs.crew[worker].host = "two";
  const double flat = *Find(ChooseStrategy(inputs), Served(1, false)).seconds;
  inputs.base.algorithm = SyncAlgorithm::kHierarchical;
  Strategy by_host = Served(1, false);
  by_host.algorithm = SyncAlgorithm::kHierarchical;
  const StrategyChoice choice = ChooseStrategy(inputs);
  // The server's link takes 2 vectors instead of 4, both ways.
  EXPECT_NEAR(*Find(choice, by_host).seconds / flat, 0.5, 0.05);
  Find(choice, Stage(2));  // shards are not reduced that way
  // With two servers each takes half of both.
  inputs.crew.push_back(inputs.crew.back());
  inputs.crew.back().host = "more";
  by_host.servers = 2;
  EXPECT_NEAR(*Find(ChooseStrategy(inputs), by_host).seconds, 2 * 2 * kElements * 1e-9,
              0.2 * kElements * 1e-9);
}

TEST(ChooseStrategyTest, LinksToServersAreUnknownWhereTheMeshIsInSharedMemory) {
  ChoiceInputs inputs = Inputs(4, 2);
  inputs.links = Links(/*shared_directions=*/true);
  inputs.links->shared_seconds = 1e-10;
  inputs.links->meet_seconds = 1e-6;
  const StrategyChoice choice = ChooseStrategy(inputs);
  EXPECT_EQ(choice.strategy, Stage(0));
  EXPECT_FALSE(Find(choice, Served(2, true)).seconds.has_value());
}

TEST(ChooseStrategyTest, ServersAreTakenWhereWorkersHaveTooLittleMemory) {
  ChoiceInputs inputs = Inputs(2, 1);
  inputs.links = Links();
  LimitWorkers(&inputs, 4);  // stage 3 takes 8
  const StrategyChoice choice = ChooseStrategy(inputs);
  EXPECT_EQ(choice.strategy, Served(1, /*mixed=*/false));
  EXPECT_GT(choice.candidates.front().server_bytes, 14 * kElements);
}

TEST(ChooseStrategyTest, NothingFits) {
  ChoiceInputs inputs = Inputs(4);
  LimitWorkers(&inputs, 2);
  StrategyChoice choice = ChooseStrategy(inputs);
  EXPECT_EQ(choice.cause, ChoiceCause::kNothingFits);
  EXPECT_THAT(choice.reason, HasSubstr("no strategy fits into memory"));
  EXPECT_THAT(choice.reason, HasSubstr("stage 3, 0 replicas: worker w0 would take 4."));
  EXPECT_THAT(choice.reason, HasSubstr("may take 2 MiB"));
  EXPECT_THAT(choice.reason, HasSubstr("add workers or parameter servers"));
  inputs.in_force = Stage(1);
  choice = ChooseStrategy(inputs);
  EXPECT_EQ(choice.strategy, Stage(1)) << "there is nothing better to go to";
  EXPECT_EQ(choice.cause, ChoiceCause::kNothingFits);
}

TEST(ChooseStrategyTest, WhatIsInForceIsLeftOnlyForWhatIsClearlyFaster) {
  ChoiceInputs inputs = Inputs(4, 2);
  inputs.in_force = Stage(0);
  inputs.links = Links(/*shared_directions=*/true);
  StrategyChoice choice = ChooseStrategy(inputs);
  EXPECT_EQ(choice.strategy, Served(2, true));
  EXPECT_EQ(choice.cause, ChoiceCause::kFastest);
  inputs.least_gain = 0.25;  // it gains 20%
  choice = ChooseStrategy(inputs);
  EXPECT_EQ(choice.strategy, Stage(0));
  EXPECT_EQ(choice.cause, ChoiceCause::kKept);
  // The same numbers the other way round.
  inputs.in_force = Served(2, true);
  inputs.links = Links();
  EXPECT_EQ(ChooseStrategy(inputs).strategy, Stage(0));
  inputs.links.reset();
  choice = ChooseStrategy(inputs);
  EXPECT_EQ(choice.strategy, Served(2, true));
  EXPECT_EQ(choice.cause, ChoiceCause::kKept);
}

TEST(ChooseStrategyTest, ForSpeedNothingChangesTooSoonForMemoryAtOnce) {
  ChoiceInputs inputs = Inputs(4, 2);
  inputs.in_force = Stage(3);
  inputs.links = Links();
  inputs.settled = false;
  StrategyChoice choice = ChooseStrategy(inputs);
  EXPECT_EQ(choice.strategy, Stage(3));
  EXPECT_EQ(choice.cause, ChoiceCause::kUnsettled);
  inputs.settled = true;
  EXPECT_EQ(ChooseStrategy(inputs).strategy, Stage(0));
  inputs.settled = false;
  inputs.in_force = Stage(0);
  LimitWorkers(&inputs, 7.5);
  choice = ChooseStrategy(inputs);
  EXPECT_EQ(choice.strategy, Stage(1));
  EXPECT_EQ(choice.cause, ChoiceCause::kMemory);
}

TEST(ChooseStrategyTest, ServersThatCameSinceAreTakenIfThatIsClearlyFaster) {
  ChoiceInputs inputs = Inputs(8, 2);
  inputs.links = Links(/*shared_directions=*/true);
  inputs.in_force = Served(1, true);
  // 2 n (n - 1) / (n^2 + k n - 2 k): 1.6 and 1.47 of the vector.
  EXPECT_EQ(ChooseStrategy(inputs).strategy, Served(1, true));
  inputs = Inputs(8, 4);
  inputs.links = Links(/*shared_directions=*/true);
  inputs.in_force = Served(1, true);
  EXPECT_EQ(ChooseStrategy(inputs).strategy, Served(4, true));
}

TEST(ChooseStrategyTest, WhatItDoesNotChooseIsKept) {
  ChoiceInputs inputs = Inputs(4, 2);
  inputs.base = {
      .replicas = 2, .algorithm = SyncAlgorithm::kRing, .transport = SyncTransport::kTcp};
  inputs.in_force = Stage(1);
  EXPECT_EQ(ChooseStrategy(inputs).strategy, (Strategy{.stage = 1,
                                                       .replicas = 2,
                                                       .algorithm = SyncAlgorithm::kRing,
                                                       .transport = SyncTransport::kTcp}));
  inputs.in_force = Served(2, true);
  const Strategy served = ChooseStrategy(inputs).strategy;
  EXPECT_EQ(served.replicas, 2);
  EXPECT_EQ(served.algorithm, SyncAlgorithm::kAutomatic) << "there is no ring of pushes";
  inputs.base.algorithm = SyncAlgorithm::kHierarchical;
  EXPECT_EQ(ChooseStrategy(inputs).strategy.algorithm, SyncAlgorithm::kHierarchical);
}

TEST(ChooseStrategyTest, ALoneWorkerHasNobodyToSpeakTo) {
  ChoiceInputs inputs = Inputs(1);
  inputs.links = Links();
  const StrategyChoice choice = ChooseStrategy(inputs);
  EXPECT_EQ(choice.strategy, Stage(0));
  EXPECT_EQ(*choice.candidates.front().seconds, 0);
}

TEST(ChooseStrategyTest, TheSameQuestionHasTheSameAnswer) {
  ChoiceInputs inputs = Inputs(7, 3);
  inputs.links = Links(/*shared_directions=*/true);
  const StrategyChoice first = ChooseStrategy(inputs);
  const StrategyChoice second = ChooseStrategy(inputs);
  EXPECT_EQ(first.strategy, second.strategy);
  EXPECT_EQ(first.reason, second.reason);
  // Who stands where makes no difference.
  std::reverse(inputs.crew.begin(), inputs.crew.end());
  EXPECT_EQ(ChooseStrategy(inputs).strategy, first.strategy);
}

TEST(ChooseStrategyTest, AStrategyThatDoesNotFitIsRefusedWithItsBytes) {
  ChoiceInputs inputs = Inputs(4);
  LimitWorkers(&inputs, 7.5);
  EXPECT_TRUE(CheckFits(inputs, Stage(1)).ok());
  const absl::Status refused = CheckFits(inputs, Stage(0));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("replicated does not fit: worker w0 would take 16."));
  EXPECT_THAT(refused.message(), HasSubstr("may take 7.5 MiB"));
}

// What it takes follows from the groups that the hosts make of the workers.
TEST(ShardGroupsTest, AreAssessedAsTheMembersWouldFormThem) {
  ChoiceInputs inputs = OnTwoHosts();
  inputs.links = Links();
  Strategy grouped = Stage(3);
  grouped.host_groups = true;
  const StrategyCandidate hybrid = Assess(inputs, grouped);
  EXPECT_EQ(hybrid.worker_bytes, Assess(Inputs(2), Stage(3)).worker_bytes);
  const StrategyCandidate plain = Assess(inputs, Stage(3));
  EXPECT_GT(hybrid.worker_bytes, plain.worker_bytes);
  // 3 P / 2 in the group and P / 2 across, where 9 P / 4 go through all, besides latencies.
  ASSERT_TRUE(hybrid.seconds.has_value() && plain.seconds.has_value());
  EXPECT_NEAR(*hybrid.seconds / *plain.seconds, 2.0 / 2.25, 0.05);
  // Only as far as it is measured, and the workers can be parted.
  inputs.links->shared_seconds = 1e-10;
  EXPECT_FALSE(Assess(inputs, grouped).seconds.has_value());
  inputs.crew.pop_back();
  EXPECT_EQ(Assess(inputs, grouped).worker_bytes, Assess(Inputs(3), Stage(3)).worker_bytes);
}

// The policy makes no groups itself, and leaves those it finds only for what is better.
TEST(ShardGroupsTest, StayInForceUntilSomethingIsBetter) {
  ChoiceInputs inputs = OnTwoHosts();
  inputs.in_force = Stage(2);
  inputs.in_force->host_groups = true;
  StrategyChoice choice = ChooseStrategy(inputs);
  EXPECT_EQ(choice.cause, ChoiceCause::kKept);
  EXPECT_EQ(choice.strategy, *inputs.in_force);
  LimitWorkers(&inputs, Assess(inputs, Stage(3)).worker_bytes / double{kElements});
  choice = ChooseStrategy(inputs);
  EXPECT_EQ(choice.cause, ChoiceCause::kMemory);
  EXPECT_EQ(choice.strategy, Stage(3));
}

}  // namespace
}  // namespace muster
