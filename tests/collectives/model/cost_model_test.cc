#include "collectives/model/cost_model.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

// 10 us a hop, 1 us a message, 1 GB/s on the wire, 10 GB/s to add.
LinkModel Network(int ranks) {
  LinkModel model;
  model.transport = "tcp";
  model.ranks = ranks;
  model.latency_seconds = 10e-6;
  model.message_seconds = 1e-6;
  model.wire = {{1, 1e-9}};
  model.reduce = {{1, 1e-10}};
  return model;
}

ChoiceRequest Sum(int64_t bytes, int size) {
  return {.count = bytes / 4, .dtype = DType::kF32, .size = size};
}

double Predicted(const LinkModel& model, const ChoiceRequest& request, Algorithm algorithm) {
  return PredictMessages(model, ToScheduleRequest(request, algorithm), request.dtype,
                         request.segment_bytes);
}

std::vector<Algorithm> Considered(const AlgorithmChoice& choice) {
  std::vector<Algorithm> algorithms;
  for (const Prediction& each : choice.considered) algorithms.push_back(each.algorithm);
  return algorithms;
}

TEST(CostModelTest, TimesAreThoseOfTheCostTable) {
  const LinkModel model = Network(4);
  const ChoiceRequest request = Sum(4096, 4);  // 1024 bytes a chunk
  // 6 hops, 2 * 3 chunks sent, 3 added.
  EXPECT_NEAR(Predicted(model, request, Algorithm::kRing), 60e-6 + 6144e-9 + 3072e-10, 1e-12);
  // 2 hops, 4 messages beyond them.
  EXPECT_NEAR(Predicted(model, request, Algorithm::kDirect), 20e-6 + 4e-6 + 6144e-9 + 3072e-10,
              1e-12);
  // The server: 2 hops, a message beyond them, and 3 vectors sent and added.
  EXPECT_NEAR(Predicted(model, request, Algorithm::kStar),
              20e-6 + 1e-6 + 3 * 4096e-9 + 3 * 4096e-10, 1e-12);
}

TEST(CostModelTest, APipelineWaitsForASegmentOfEachHopBefore) {
  const LinkModel model = Network(4);
  ChoiceRequest request = Sum(int64_t{1} << 20, 4);
  request.collective = Collective::kBroadcast;
  request.segment_bytes = 64 << 10;
  // Rank 1 sends all of it, and waits for two segments of others.
  EXPECT_NEAR(Predicted(model, request, Algorithm::kRing),
              30e-6 + 13e-6 + ((1 << 20) + 2 * (64 << 10)) * 1e-9, 1e-12);
}

TEST(CostModelTest, SmallVectorsTakeFewHopsAndLargeOnesFewBytes) {
  const LinkModel model = Network(8);
  EXPECT_EQ(Choose(model, Sum(64, 8)).algorithm, Algorithm::kOneShot);
  EXPECT_EQ(Choose(model, Sum(64 << 10, 8)).algorithm, Algorithm::kDirect);
  ChoiceRequest large = Sum(64 << 20, 8);
  large.any_order = true;
  const AlgorithmChoice choice = Choose(model, large);
  EXPECT_NE(choice.algorithm, Algorithm::kStar);
  EXPECT_EQ(choice.considered.back().algorithm, Algorithm::kStar);
}

TEST(CostModelTest, WhatWasMeasuredOfAnAlgorithmCounts) {
  LinkModel model = Network(4);
  const ChoiceRequest request = Sum(16 << 20, 4);
  model.factors = {{Collective::kAllReduce, Algorithm::kDirect, 1024, 1.5}};
  EXPECT_EQ(Choose(model, request).algorithm, Algorithm::kRing);
  model.factors = {{Collective::kAllReduce, Algorithm::kRing, 1024, 1.5}};
  const AlgorithmChoice choice = Choose(model, request);
  EXPECT_EQ(choice.algorithm, Algorithm::kDirect);
  ASSERT_EQ(choice.considered[1].algorithm, Algorithm::kRing);
  EXPECT_EQ(choice.considered[1].factor, 1.5);
  EXPECT_NEAR(choice.considered[1].seconds, 1.5 * Predicted(model, request, Algorithm::kRing),
              1e-9);
}

TEST(CostModelTest, OnlyAlgorithmsOfTheCanonicalOrderUnlessAnyWillDo) {
  const LinkModel model = Network(4);
  ChoiceRequest request = Sum(1 << 20, 4);
  request.hosts = {0, 0, 1, 1};
  const AlgorithmChoice canonical = Choose(model, request);
  EXPECT_THAT(Considered(canonical), UnorderedElementsAre(Algorithm::kRing, Algorithm::kDirect,
                                                          Algorithm::kStar, Algorithm::kOneShot));
  EXPECT_THAT(canonical.out_of_order,
              UnorderedElementsAre(Algorithm::kRecursiveDoubling, Algorithm::kHalvingDoubling,
                                   Algorithm::kDoubleTree, Algorithm::kHierarchical));
  request.any_order = true;
  EXPECT_EQ(Choose(model, request).considered.size(), 8u);
  EXPECT_THAT(Choose(model, request).out_of_order, IsEmpty());
  request.hosts.clear();
  EXPECT_THAT(Considered(Choose(model, request)), Not(Contains(Algorithm::kHierarchical)));
}

TEST(CostModelTest, TwoRanksAndIntegersHaveTheSameBitsInAnyOrder) {
  const LinkModel model = Network(2);
  EXPECT_EQ(Choose(model, Sum(64, 2)).algorithm, Algorithm::kRecursiveDoubling);
  EXPECT_THAT(Considered(Choose(model, Sum(64, 2))),
              UnorderedElementsAre(Algorithm::kRing, Algorithm::kDirect, Algorithm::kStar,
                                   Algorithm::kRecursiveDoubling, Algorithm::kOneShot));
  ChoiceRequest integers = Sum(512, 5);
  integers.dtype = DType::kI64;
  EXPECT_THAT(Considered(Choose(model, integers)), Contains(Algorithm::kRecursiveDoubling));
  ChoiceRequest floats = integers;
  floats.dtype = DType::kF64;
  EXPECT_THAT(Considered(Choose(model, floats)), Not(Contains(Algorithm::kRecursiveDoubling)));
  // Forwarding partial sums would round 16-bit floats at each hop.
  ChoiceRequest halves = Sum(64, 2);
  halves.dtype = DType::kBF16;
  halves.any_order = true;
  EXPECT_THAT(Considered(Choose(model, halves)),
              UnorderedElementsAre(Algorithm::kRing, Algorithm::kDirect, Algorithm::kStar,
                                   Algorithm::kOneShot));
}

TEST(CostModelTest, OneShotIsNoCandidateWhereItWouldHoldMuchMemory) {
  constexpr int64_t kMost = 4 << 20;
  for (const int size : {2, 5}) {
    const LinkModel model = Network(size);
    const int64_t bytes = kMost / (size - 1);
    EXPECT_THAT(Considered(Choose(model, Sum(bytes, size))), Contains(Algorithm::kOneShot));
    EXPECT_THAT(Considered(Choose(model, Sum(bytes + 4, size))),
                Not(Contains(Algorithm::kOneShot)));
  }
}

TEST(CostModelTest, AnotherSegmentIsTakenWhereItIsClearlyBetter) {
  const LinkModel model = Network(8);
  ChoiceRequest request = Sum(1 << 20, 8);
  request.collective = Collective::kBroadcast;
  request.segment_bytes = 1 << 20;
  AlgorithmChoice choice = Choose(model, request);
  const auto chain =
      std::find_if(choice.considered.begin(), choice.considered.end(),
                   [](const Prediction& p) { return p.algorithm == Algorithm::kRing; });
  EXPECT_EQ(chain->segment_bytes, 256 << 10);
  // What was measured was so in segments of the size configured.
  LinkModel measured = model;
  measured.factors = {{Collective::kBroadcast, Algorithm::kRing, 1, 1.0}};
  for (const Prediction& each : Choose(measured, request).considered) {
    if (each.algorithm == Algorithm::kRing) {
      EXPECT_EQ(each.segment_bytes, 1 << 20);
    }
  }
  // Without hops to wait for there is nothing to gain.
  for (const Prediction& each : Choose(model, Sum(1 << 20, 8)).considered) {
    EXPECT_EQ(each.segment_bytes, 256 << 10) << Name(each.algorithm);
  }
}

TEST(CostModelTest, SharedMemoryIsACandidateWhereThereIsSome) {
  LinkModel model = Network(4);
  model.transport = "shm";
  model.meet_seconds = 1e-6;
  model.shared = {{1, 1e-11}};
  ChoiceRequest request = Sum(4096, 4);
  EXPECT_THAT(Considered(Choose(model, request)), Not(Contains(Algorithm::kWindow)));
  request.window = {.small_limit_bytes = 4096, .half_bytes = 1 << 20};
  EXPECT_NEAR(PredictWindow(model, request), 1e-6 + 6 * 4096e-11, 1e-15);
  EXPECT_EQ(Choose(model, request).algorithm, Algorithm::kWindow);
  request.count = 1 << 20;  // 4 MiB: 4 pieces and 3 meets, in and out of the stages
  EXPECT_NEAR(PredictWindow(model, request), 7e-6 + 6 * 4194304e-11, 1e-12);
  EXPECT_EQ(Choose(model, request).algorithm, Algorithm::kWindow);
  // Buffers that turn out to be registered make up for much.
  const double best = Choose(model, request).considered[1].seconds;
  model.factors = {
      {Collective::kAllReduce, Algorithm::kWindow, 1, 2.5 * best / PredictWindow(model, request)}};
  const AlgorithmChoice slower = Choose(model, request);
  EXPECT_EQ(slower.algorithm, Algorithm::kWindow);
  EXPECT_GT(slower.considered[0].seconds, slower.considered[1].seconds);
  EXPECT_THAT(Comparison(slower), HasSubstr("window is taken unless it is 3 times as slow"));
  model.factors[0].factor *= 2;
  EXPECT_NE(Choose(model, request).algorithm, Algorithm::kWindow);
  model.factors.clear();
  model.meet_seconds = 1;
  EXPECT_NE(Choose(model, request).algorithm, Algorithm::kWindow);
  request.collective = Collective::kAllToAll;
  EXPECT_THAT(Considered(Choose(model, request)), Not(Contains(Algorithm::kWindow)));
}

TEST(CostModelTest, EveryCollectiveOfEverySizeHasAChoice) {
  for (const Collective collective : kAllCollectives) {
    for (const int size : {1, 2, 3, 7, 8, 33, 100}) {
      if (collective == Collective::kSendReceive && size == 1) continue;
      for (const int64_t count : {0, 1, 1000, 1 << 22}) {
        ChoiceRequest request{.collective = collective, .count = count, .size = size};
        if (collective == Collective::kBroadcast || collective == Collective::kReduce) {
          request.root = size - 1;
        }
        const AlgorithmChoice choice = Choose(Network(size), request);
        EXPECT_THAT(AlgorithmsOf(collective), Contains(choice.algorithm));
        EXPECT_TRUE(std::is_sorted(
            choice.considered.begin(), choice.considered.end(),
            [](const Prediction& a, const Prediction& b) { return a.seconds < b.seconds; }));
      }
    }
  }
}

TEST(CostModelTest, AChoiceIsExplained) {
  const LinkModel model = Network(4);
  const ChoiceRequest request = Sum(1 << 20, 4);
  const std::string text = Explain(model, request, Choose(model, request));
  EXPECT_THAT(text, HasSubstr("all-reduce of 1 MiB (f32) by 4 ranks over tcp: "));
  EXPECT_THAT(text, HasSubstr("direct"));
  EXPECT_THAT(text, HasSubstr("star"));
  EXPECT_THAT(text, HasSubstr("left out, as they add in another order: recursive-doubling"));
}

}  // namespace
}  // namespace muster
