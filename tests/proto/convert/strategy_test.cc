// Who chooses a job's strategy, between job descriptions and the domain.
#include "proto/convert/strategy.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/convert/job.h"
#include "tests/proto/convert/valid_job.h"

namespace muster {
namespace {

v1::JobDescription JobWithoutStrategy() {
  v1::JobDescription job = ValidJob();
  job.clear_switches();
  job.mutable_communication()->clear_algorithm();
  job.mutable_communication()->clear_transport();
  job.clear_strategy();
  return job;
}

std::string ErrorOf(const v1::Strategy& strategy) {
  return std::string(AskedStrategyFromProto(strategy, {}, "strategy").status().message());
}

TEST(AskedStrategyTest, APolicyChoosesWhatIsNotGiven) {
  v1::JobDescription job = JobWithoutStrategy();
  job.mutable_strategy()->set_policy(v1::Strategy::AUTO);
  job.mutable_strategy()->set_replicas(2);
  job.mutable_strategy()->set_transport(v1::Communication::TCP);
  v1::Switch* change = job.add_switches();
  change->set_after_step(1);
  change->mutable_strategy()->set_policy(v1::Strategy::MANUAL);
  change->mutable_strategy()->set_stage(3);
  change = job.add_switches();
  change->set_after_step(2);
  change->mutable_strategy()->set_policy(v1::Strategy::AUTO);
  const absl::StatusOr<JobSpec> spec = JobSpecFromProto(job);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->automatic);
  EXPECT_EQ(spec->strategy, (Strategy{.replicas = 2, .transport = SyncTransport::kTcp}));
  EXPECT_EQ(spec->switches, (std::vector<StrategySwitch>{{.after = 1, .strategy = {.stage = 3}},
                                                         {.after = 2, .automatic = true}}));
}

TEST(AskedStrategyTest, ByDefaultTheStrategyIsTheOneWritten) {
  v1::JobDescription job = JobWithoutStrategy();
  EXPECT_FALSE(JobSpecFromProto(job)->automatic);
  job.mutable_strategy()->set_policy(v1::Strategy::MANUAL);
  EXPECT_FALSE(JobSpecFromProto(job)->automatic);
}

TEST(AskedStrategyTest, RoundTrips) {
  for (const bool automatic : {false, true}) {
    const AskedStrategy asked{{.replicas = 3, .algorithm = SyncAlgorithm::kRing}, automatic};
    v1::Strategy proto = ToProto(asked);
    EXPECT_EQ(proto.policy() == v1::Strategy::AUTO, automatic);
    proto.clear_sync();  // shown, and chosen by the coordinator
    EXPECT_EQ(*AskedStrategyFromProto(proto, {}, "s"), asked);
  }
  // What is shown of a choice is a strategy, whoever has made it.
  const v1::Strategy shown = ToProto(AskedStrategy{{.stage = 2}, true});
  EXPECT_EQ(*StrategyFromProto(shown, {}, "s"), (Strategy{.stage = 2}));
}

TEST(StrategyTest, ServersTakeWhatTheirPushesCanBe) {
  const Strategy defaults{.algorithm = SyncAlgorithm::kHierarchical};
  v1::Strategy strategy;
  strategy.set_sync(v1::Strategy::PARAMETER_SERVER);
  EXPECT_EQ(StrategyFromProto(strategy, defaults, "s")->algorithm, SyncAlgorithm::kAutomatic)
      << "what a job says of its all-reduces";
  for (const SyncAlgorithm algorithm : {SyncAlgorithm::kDirect, SyncAlgorithm::kHierarchical}) {
    const Strategy asked{.sync = SyncPath::kParameterServer, .servers = 2, .algorithm = algorithm};
    EXPECT_EQ(*StrategyFromProto(ToProto(asked), {}, "s"), asked);
  }
  EXPECT_EQ(ToString({.sync = SyncPath::kParameterServer,
                      .servers = 2,
                      .algorithm = SyncAlgorithm::kHierarchical}),
            "up to 2 parameter servers, 1 replica, hierarchical");
}

TEST(ShardGroupTest, RoundTrips) {
  for (const Strategy& strategy : {Strategy{.stage = 1, .group_size = 4},
                                   Strategy{.stage = 3, .host_groups = true}, Strategy{}}) {
    EXPECT_EQ(*StrategyFromProto(ToProto(strategy), {}, "s"), strategy);
  }
  v1::Strategy fleet;
  fleet.set_shard_group(v1::Strategy::FLEET);
  EXPECT_EQ(*StrategyFromProto(fleet, {}, "s"), Strategy());
}

TEST(ShardGroupTest, IsOfStagesInShardsAndGivenOnce) {
  v1::Strategy strategy;
  strategy.set_shard_group(v1::Strategy::HOST);
  EXPECT_EQ(ErrorOf(strategy),
            "strategy.shard_group: must be absent unless stage is 1 to 3, got HOST");
  strategy.set_stage(2);
  EXPECT_EQ(ErrorOf(strategy), "");
  strategy.set_shard_group_size(4);
  EXPECT_EQ(ErrorOf(strategy),
            "strategy.shard_group_size: must be 0 or absent with a shard_group, got 4");
  strategy.clear_shard_group();
  EXPECT_EQ(ErrorOf(strategy), "");
  strategy.set_stage(0);
  EXPECT_EQ(ErrorOf(strategy),
            "strategy.shard_group_size: must be absent unless stage is 1 to 3, got 4");
  strategy.set_sync(v1::Strategy::PARAMETER_SERVER);
  EXPECT_EQ(ErrorOf(strategy),
            "strategy.shard_group_size: must be absent unless stage is 1 to 3, got 4");
  strategy.Clear();
  strategy.set_policy(v1::Strategy::AUTO);
  strategy.set_shard_group(v1::Strategy::FLEET);
  EXPECT_EQ(
      ErrorOf(strategy),
      "strategy.shard_group: must be absent with policy AUTO, where the coordinator chooses it");
}

// A job with 2 to 8 workers.
TEST(ShardGroupTest, IsRefusedWhereItCanNeverBe) {
  v1::JobDescription job = JobWithoutStrategy();
  job.mutable_strategy()->set_stage(2);
  const auto error = [&job] { return std::string(JobSpecFromProto(job).status().message()); };
  for (const int32_t size : {1, 3, 5, 8}) {
    job.mutable_strategy()->set_shard_group_size(size);
    EXPECT_EQ(error(), "");
  }
  job.mutable_strategy()->set_shard_group_size(9);
  EXPECT_EQ(error(),
            "strategy.shard_group_size: must be a divisor of one of the numbers of workers that "
            "there may be (2 to 8), got 9");
  job.mutable_strategy()->set_shard_group_size(3);
  job.mutable_workers()->set_min(4);
  job.mutable_workers()->set_max(5);
  EXPECT_EQ(error(),
            "strategy.shard_group_size: must be a divisor of one of the numbers of workers that "
            "there may be (4 to 5), got 3");
  job.mutable_strategy()->set_shard_group_size(2);
  job.mutable_communication()->set_gradients(v1::Communication::INT8);
  EXPECT_EQ(error(),
            "strategy.shard_group_size: must be absent with communication.gradients INT8 or TOP_K, "
            "whose contributions go from each worker to the owners, got 2");
}

TEST(AskedStrategyTest, WhatTheCoordinatorChoosesMayNotBeGiven) {
  v1::Strategy automatic;
  automatic.set_policy(v1::Strategy::AUTO);
  v1::Strategy strategy = automatic;
  strategy.set_stage(2);
  EXPECT_EQ(ErrorOf(strategy),
            "strategy.stage: must be absent with policy AUTO, where the coordinator chooses it");
  strategy = automatic;
  strategy.set_sync(v1::Strategy::ALL_REDUCE);
  EXPECT_EQ(ErrorOf(strategy),
            "strategy.sync: must be absent with policy AUTO, where the coordinator chooses it");
  strategy.set_sync(v1::Strategy::PARAMETER_SERVER);
  strategy.set_servers(1);
  EXPECT_EQ(ErrorOf(strategy),
            "strategy.sync: must be absent with policy AUTO, where the coordinator chooses it");
  strategy = automatic;
  strategy.set_servers(1);
  EXPECT_EQ(ErrorOf(strategy),
            "strategy.servers: must be absent with policy AUTO, where the coordinator chooses it");
  strategy.set_mixed(true);
  strategy.clear_servers();
  EXPECT_EQ(ErrorOf(strategy),
            "strategy.mixed: must be absent with policy AUTO, where the coordinator chooses it");
  strategy = automatic;
  strategy.set_algorithm(v1::Communication::DOUBLE_TREE);
  EXPECT_EQ(ErrorOf(strategy),
            "strategy.algorithm: must be RING, DIRECT or absent with policy AUTO, since the state "
            "may be in shards, got double-tree");
  strategy.set_policy(static_cast<v1::Strategy::Policy>(9));
  EXPECT_EQ(ErrorOf(strategy), "strategy.policy: must be MANUAL, AUTO or absent, got number 9");
}

}  // namespace
}  // namespace muster
