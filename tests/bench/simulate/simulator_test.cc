#include "bench/simulate/simulator.h"

#include <cmath>
#include <memory>
#include <string>

#include "base/check.h"
#include "bench/simulate/training_step.h"
#include "collectives/schedule/cost.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

// One rank on each host, so that every message goes through a card of its sender's own.
NetworkModel Uniform() {
  NetworkModel network;
  network.ranks_per_host = 1;
  network.inside_bytes_per_s = 1e9;
  network.between_latency_s = 1e-3;
  network.between_bytes_per_s = 1e6;
  network.memory_bytes_per_s = 1e15;
  return network;
}

ScheduleRequest AllReduce(Algorithm algorithm, int size, int64_t count) {
  ScheduleRequest request;
  request.algorithm = algorithm;
  request.size = size;
  request.count = count;
  request.in_place = true;
  return request;
}

double TimeOf(const NetworkModel& network, const ScheduleRequest& request, int64_t segment_bytes,
              Simulator* simulator) {
  auto collective = SimulatedCollective::Create(request, DType::kF32, segment_bytes);
  MUSTER_CHECK(collective.ok()) << collective.status();
  const int call = simulator->Launch(*collective, /*start_s=*/0);
  simulator->Run();
  return simulator->DoneAt(call);
}

double TimeOf(const NetworkModel& network, const ScheduleRequest& request,
              int64_t segment_bytes = int64_t{1} << 40) {
  Simulator simulator(network, request.size);
  return TimeOf(network, request, segment_bytes, &simulator);
}

TEST(SimulatorTest, ARingTakesItsHopsAndItsBytes) {
  for (const int p : {2, 3, 8}) {
    const int64_t n = 1000 * p;
    const double expected = 2 * (p - 1) * (1e-3 + 4.0 * 1000 / 1e6);
    EXPECT_NEAR(TimeOf(Uniform(), AllReduce(Algorithm::kRing, p, n)), expected, 1e-6) << p;
  }
}

// Receives what all others send, then sends to all others: the server's card carries everything.
TEST(SimulatorTest, AStarWaitsForItsServersCard) {
  const int p = 9;
  const double vector_s = 4.0 * 1000 / 1e6;
  EXPECT_NEAR(TimeOf(Uniform(), AllReduce(Algorithm::kStar, p, 1000)),
              2 * (1e-3 + (p - 1) * vector_s), 1e-6);
}

TEST(SimulatorTest, SegmentsOverlapHops) {
  // A chain of broadcasts: whole, every hop takes all bytes; in segments, only the first does.
  ScheduleRequest request = AllReduce(Algorithm::kRing, 5, 100'000);
  request.collective = Collective::kBroadcast;
  const double bytes_s = 4.0 * 100'000 / 1e6;
  EXPECT_NEAR(TimeOf(Uniform(), request), 4 * (1e-3 + bytes_s), 1e-6);
  EXPECT_NEAR(TimeOf(Uniform(), request, 4000), 4 * 1e-3 + bytes_s + 3 * 4000 / 1e6, 1e-6);
}

TEST(SimulatorTest, SumsTakeTheMemorysTime) {
  NetworkModel network = Uniform();
  network.memory_bytes_per_s = 1e6;
  // The one sum of each rank, of half of the vector: two reads and a write.
  const double slower = TimeOf(network, AllReduce(Algorithm::kRing, 2, 2000));
  EXPECT_NEAR(slower - TimeOf(Uniform(), AllReduce(Algorithm::kRing, 2, 2000)), 3 * 4000 / 1e6,
              1e-6);
}

TEST(SimulatorTest, RanksOfAHostShareItsCards) {
  NetworkModel network = Uniform();
  network.ranks_per_host = 4;
  network.cards_per_host = 2;
  // Recursive doubling's last round crosses hosts: two ranks send through each card.
  const double two = TimeOf(network, AllReduce(Algorithm::kRecursiveDoubling, 8, 10'000));
  network.cards_per_host = 4;
  const double four = TimeOf(network, AllReduce(Algorithm::kRecursiveDoubling, 8, 10'000));
  EXPECT_NEAR(two - four, 4.0 * 10'000 / 1e6, 1e-6);
}

TEST(SimulatorTest, CardsCarryTheBytesOfTheCostTable) {
  for (const Algorithm algorithm :
       {Algorithm::kRing, Algorithm::kDirect, Algorithm::kStar, Algorithm::kHalvingDoubling,
        Algorithm::kRecursiveDoubling, Algorithm::kDoubleTree}) {
    ScheduleRequest request = AllReduce(algorithm, 7, 12'345);
    Simulator simulator(Uniform(), request.size);
    TimeOf(Uniform(), request, 1000, &simulator);
    for (request.rank = 0; request.rank < request.size; ++request.rank) {
      EXPECT_EQ(simulator.BytesBetween(request.rank), 4 * CostOf(request).elements_sent)
          << Name(algorithm) << " rank " << request.rank;
    }
  }
}

TEST(SimulatorTest, HierarchicalCrossesHostsOncePerHost) {
  NetworkModel network = Uniform();
  network.ranks_per_host = 4;
  ScheduleRequest request = AllReduce(Algorithm::kHierarchical, 8, 8000);
  for (Rank rank = 0; rank < 8; ++rank) request.hosts.push_back(network.HostOf(rank));
  Simulator simulator(network, request.size);
  TimeOf(network, request, 1000, &simulator);
  // 2 (H - 1) / H of the vector.
  EXPECT_EQ(simulator.BytesBetween(0), 4 * 8000);
  EXPECT_EQ(simulator.BytesBetween(1), 4 * 8000);
}

TEST(SimulatorTest, OneRankIsDoneAtOnce) {
  EXPECT_EQ(TimeOf(Uniform(), AllReduce(Algorithm::kRing, 1, 1000)), 0);
}

TEST(TrainingStepTest, WhatHidesBehindComputingCostsNothing) {
  NetworkModel network = Uniform();
  network.between_latency_s = 0;
  TrainingStep step = {
      .parameters = 1000, .bucket_bytes = 400, .segment_bytes = 4000, .compute_s = 3};
  // Ten buckets over two seconds; a ring of two sends each element once: 0.4 ms for a bucket.
  const auto hidden = SimulateStep(network, 2, Algorithm::kRing, step);
  ASSERT_TRUE(hidden.ok()) << hidden.status();
  EXPECT_NEAR(hidden->step_s, 3 + 0.4e-3, 1e-9);
  // Where sending is slower than computing, the card decides.
  network.between_bytes_per_s = 1000;
  const auto bound = SimulateStep(network, 2, Algorithm::kRing, step);
  ASSERT_TRUE(bound.ok()) << bound.status();
  EXPECT_NEAR(bound->step_s, 1 + 0.2 + 4.0, 1e-9);
  EXPECT_NEAR(bound->efficiency, 3 / 5.2, 1e-9);
}

TEST(TrainingStepTest, MessagesAreCountedBeforeTheyAreMade) {
  const TrainingStep step = {
      .parameters = 1000, .bucket_bytes = 400, .segment_bytes = 1 << 20, .compute_s = 1};
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kDirect, Algorithm::kStar}) {
    const auto counted = MessagesOfStep(Uniform(), 5, algorithm, step);
    const auto simulated = SimulateStep(Uniform(), 5, algorithm, step);
    ASSERT_TRUE(counted.ok() && simulated.ok());
    EXPECT_EQ(simulated->messages, *counted);
  }
}

TEST(NetworkTest, AnUnknownPresetIsRefusedByName) {
  EXPECT_THAT(std::string(NetworkPreset("p9").status().message()),
              ::testing::AllOf(::testing::HasSubstr("p9"), ::testing::HasSubstr("p4d")));
}

}  // namespace
}  // namespace muster
