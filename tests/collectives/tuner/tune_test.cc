// Measuring, agreeing and keeping, over real transports. No test looks at how long anything takes.
#include "collectives/tuner/tune.h"

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "tests/base/temporary_directory.h"
#include "tests/collectives/engine/communicator_fixture.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

MeasureOptions Quick() { return {.budget = absl::Seconds(60), .largest_bytes = 64 << 10}; }

class TuneTest : public testing::TestWithParam<std::tuple<MeshKind, int>> {
 protected:
  MeshKind kind() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }

  // Every rank tunes with what it knows (null: nothing).
  std::vector<absl::StatusOr<Tuned>> TuneAll(TestFleet& fleet, const TuneOptions& options,
                                             const std::vector<const KnownModel*>& known) {
    std::vector<absl::StatusOr<Tuned>> tuned(fleet.ranks.size(), absl::UnknownError("not run"));
    RunRanks(static_cast<int>(fleet.ranks.size()), [&](Rank r) {
      tuned[r] = TuneCommunicator(*fleet.ranks[r], files_, options, known[r]);
    });
    for (const auto& each : tuned) EXPECT_TRUE(each.ok()) << each.status();
    return tuned;
  }

  TuneOptions OptionsOf(const TestFleet& fleet) const {
    TuneOptions options;
    options.identity.transport = fleet.ranks[0]->transport_name();
    options.identity.hosts.assign(fleet.ranks.size(), "here");
    options.identity.software_version = "test";
    options.measure = Quick();
    return options;
  }

  const TemporaryDirectory temporary_;
  PosixFileSystem files_;
};

TEST_P(TuneTest, AllRanksMeasureTheSameModelAndChooseByIt) {
  TestFleet fleet = MakeFleet(kind(), size());
  const auto tuned = TuneAll(fleet, OptionsOf(fleet), std::vector<const KnownModel*>(size()));
  const LinkModel& model = *tuned[0]->model;
  EXPECT_THAT(tuned[0]->source, HasSubstr("measured"));
  for (const auto& each : tuned) EXPECT_EQ(*each->model, model);
  EXPECT_EQ(model.transport, fleet.ranks[0]->transport_name());
  EXPECT_EQ(model.ranks, size());
  EXPECT_EQ(model.wire.size(), 1u);
  EXPECT_EQ(model.reduce.size(), 1u);
  EXPECT_EQ(model.one_way.size(), size() > 1 ? 1u : 0u);
  if (size() > 1) {
    EXPECT_GE(model.one_way[0].seconds_per_byte, 0.49 * model.wire[0].seconds_per_byte);
    EXPECT_LE(model.one_way[0].seconds_per_byte, 1.01 * model.wire[0].seconds_per_byte);
  }
  EXPECT_EQ(model.shared.size(), kind() == MeshKind::kShm ? 1u : 0u);
  if (size() > 1) {
    EXPECT_GT(model.latency_seconds, 0);
    EXPECT_THAT(model.factors, testing::Not(IsEmpty()));
  }
  for (const int64_t count : {1, 1000, 10000}) {
    std::vector<std::vector<float>> outputs(size(), std::vector<float>(count));
    const AlgorithmExplanation chosen =
        fleet.ranks[0]->ExplainChoice(Collective::kAllReduce, count, DType::kF32);
    EXPECT_EQ(chosen.algorithm, Choose(model, fleet.ranks[0]->ChoiceRequestFor(
                                                  Collective::kAllReduce, count, DType::kF32))
                                    .algorithm);
    EXPECT_THAT(chosen.why, HasSubstr(Name(chosen.algorithm)));
    RunRanks(size(), [&](Rank r) {
      const std::vector<float> input(count, static_cast<float>(r + 1));
      Work work = fleet.ranks[r]->AllReduce(input.data(), outputs[r].data(), count, DType::kF32,
                                            ReduceOp::kSum);
      EXPECT_TRUE(work.Wait().ok()) << work.status();
    });
    const auto sum = static_cast<float>(size() * (size() + 1) / 2);
    for (const auto& output : outputs) EXPECT_EQ(output, std::vector<float>(count, sum));
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, TuneTest,
                         testing::Combine(testing::Values(MeshKind::kInProcess, MeshKind::kTcp,
                                                          MeshKind::kShm, MeshKind::kHostile),
                                          testing::Values(1, 2, 3)),
                         [](const auto& info) {
                           return NameOf(std::get<0>(info.param)) +
                                  std::to_string(std::get<1>(info.param));
                         });

class KeptModelTest : public TuneTest {};

LinkModel Distinct(double latency, int ranks) {
  LinkModel model;
  model.transport = "in-process";
  model.ranks = ranks;
  model.latency_seconds = latency;
  return model;
}

TEST_P(KeptModelTest, AFileSparesMeasuringAndADamagedOneIsMeasuredAnew) {
  TestFleet fleet = MakeFleet(kind(), size());
  TuneOptions options = OptionsOf(fleet);
  options.cache_directory = JoinPath(temporary_.path(), "cache");
  const std::vector<const KnownModel*> nothing(size());
  const auto first = TuneAll(fleet, options, nothing);
  EXPECT_THAT(first[0]->source, HasSubstr("measured"));
  const auto second = TuneAll(fleet, options, nothing);
  EXPECT_THAT(second[1]->source, HasSubstr("file of rank 0"));
  EXPECT_EQ(*second[1]->model, *first[0]->model);
  ASSERT_TRUE(ReplaceFileAtomically(files_, ModelPath(options.cache_directory, options.identity),
                                    "nonsense")
                  .ok());
  const auto third = TuneAll(fleet, options, nothing);
  EXPECT_THAT(third[0]->source, HasSubstr("measured"));
  ASSERT_EQ(third[1]->warnings.size(), 1u);
  EXPECT_THAT(third[1]->warnings[0], HasSubstr("too short"));
}

TEST_P(KeptModelTest, ADirectoryThatCannotBeWrittenIsAWarning) {
  TestFleet fleet = MakeFleet(kind(), size());
  TuneOptions options = OptionsOf(fleet);
  const std::string in_the_way = JoinPath(temporary_.path(), "file");
  ASSERT_TRUE(ReplaceFileAtomically(files_, in_the_way, "").ok());
  options.cache_directory = JoinPath(in_the_way, "cache");
  const auto tuned = TuneAll(fleet, options, std::vector<const KnownModel*>(size()));
  EXPECT_THAT(tuned[0]->source, HasSubstr("measured"));
  EXPECT_THAT(tuned[0]->warnings, testing::Not(IsEmpty()));
}

TEST_P(KeptModelTest, WhatOneRankKnowsOfThisMeshAllTake) {
  TestFleet fleet = MakeFleet(kind(), size());
  const TuneOptions options = OptionsOf(fleet);
  const KnownModel known{options.identity, std::make_shared<LinkModel>(Distinct(0.5, size()))};
  std::vector<const KnownModel*> knows(size());
  knows[size() - 1] = &known;
  for (const auto& each : TuneAll(fleet, options, knows)) {
    EXPECT_EQ(each->model->latency_seconds, 0.5);
    EXPECT_THAT(each->source, HasSubstr("known to rank 2"));
  }
}

TEST_P(KeptModelTest, AShrunkMeshTakesTheLargerOnesModelAndAGrownOneIsMeasured) {
  TestFleet fleet = MakeFleet(kind(), size());
  const TuneOptions options = OptionsOf(fleet);
  KnownModel larger{options.identity, std::make_shared<LinkModel>(Distinct(0.5, 5))};
  larger.identity.hosts.assign(5, "here");
  KnownModel smaller{options.identity, std::make_shared<LinkModel>(Distinct(0.25, 2))};
  smaller.identity.hosts.assign(2, "here");
  for (const auto& each : TuneAll(fleet, options, {nullptr, &larger, &smaller})) {
    EXPECT_EQ(each->model->latency_seconds, 0.5);
    EXPECT_THAT(each->source, HasSubstr("measured with 5 ranks"));
  }
  for (const auto& each : TuneAll(fleet, options, {&smaller, &smaller, &smaller})) {
    EXPECT_NE(each->model->latency_seconds, 0.25);
    EXPECT_EQ(each->model->ranks, 3);
  }
  larger.identity.transport = "tcp";
  for (const auto& each : TuneAll(fleet, options, {&larger, nullptr, nullptr})) {
    EXPECT_EQ(each->model->ranks, 3);
  }
}

TEST_P(KeptModelTest, WithoutTimeTheModelIsJustShort) {
  TestFleet fleet = MakeFleet(kind(), size());
  TuneOptions options = OptionsOf(fleet);
  options.measure.budget = absl::ZeroDuration();
  options.cache_directory = temporary_.path();
  const auto tuned = TuneAll(fleet, options, std::vector<const KnownModel*>(size()));
  EXPECT_THAT(tuned[0]->model->factors, IsEmpty());
  EXPECT_EQ(*tuned[0]->model, *tuned[2]->model);
  // And no later start goes by it.
  ASSERT_EQ(tuned[0]->warnings.size(), 1u);
  EXPECT_THAT(tuned[0]->warnings[0], HasSubstr("was not measured"));
  EXPECT_THAT(*files_.ListDirectory(temporary_.path()), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Threads, KeptModelTest,
                         testing::Values(std::tuple(MeshKind::kInProcess, 3)));

TEST(TuneFailureTest, ARankThatLeavesIsAnErrorOfTheOthers) {
  TestFleet fleet = MakeFleet(MeshKind::kTcp, 3);
  RunRanks(3, [&](Rank r) {
    if (r == 2) return fleet.ranks[r]->Abort(absl::UnavailableError("gone"));
    const auto model = MeasureLinks(*fleet.ranks[r], Quick());
    EXPECT_EQ(model.status().code(), absl::StatusCode::kUnavailable) << model.status();
  });
}

// Models that differ are found out by the first call of which they make different things.
TEST(TuneFailureTest, DifferentModelsAreAMismatchNotAWrongSum) {
  TestFleet fleet = MakeFleet(MeshKind::kInProcess, 3);
  for (Rank r = 0; r < 3; ++r) {
    auto model = std::make_shared<LinkModel>(Distinct(1e-6, 3));
    model->factors = {
        {Collective::kAllReduce, r == 0 ? Algorithm::kRing : Algorithm::kDirect, 1, 1e6},
        {Collective::kAllReduce, Algorithm::kStar, 1, 1e9},
        {Collective::kAllReduce, Algorithm::kOneShot, 1, 1e9}};
    fleet.ranks[r]->SetModel(model);
  }
  RunRanks(3, [&](Rank r) {
    std::vector<float> data(100, 1);
    Work work =
        fleet.ranks[r]->AllReduce(data.data(), data.data(), 100, DType::kF32, ReduceOp::kSum);
    EXPECT_EQ(work.Wait().code(), absl::StatusCode::kInvalidArgument) << work.status();
  });
}

// With a model and without one, subgroups and every collective that has a choice.
TEST(ChosenAlgorithmsTest, AnyChoiceGivesTheSameResults) {
  constexpr int kSize = 4;
  CommunicatorOptions options;
  options.any_order = true;
  options.hosts = {0, 0, 1, 1};
  TestFleet fleet = MakeFleet(MeshKind::kTcp, kSize, options);
  for (const Algorithm favourite :
       {Algorithm::kRing, Algorithm::kDirect, Algorithm::kStar, Algorithm::kHierarchical,
        Algorithm::kDoubleTree, Algorithm::kHalvingDoubling, Algorithm::kRecursiveDoubling,
        Algorithm::kBruck, Algorithm::kBinomialTree, Algorithm::kScatterAllGather,
        Algorithm::kOneShot}) {
    auto model = std::make_shared<LinkModel>(Distinct(1e-6, kSize));
    for (const Collective collective : kAllCollectives) {
      model->factors.push_back({collective, favourite, 1, 1e-6});
    }
    RunRanks(kSize, [&](Rank r) {
      Communicator& own = *fleet.ranks[r];
      own.SetModel(model);
      const auto half = own.Split(r % 2, r);
      ASSERT_TRUE(half.ok()) << half.status();
      for (const auto& [ranks, expected] :
           {std::pair(&own, 10.0f), {half->get(), r % 2 == 0 ? 4.0f : 6.0f}}) {
        std::vector<float> data(1000, static_cast<float>(r + 1));
        const bool has =
            ranks->ExplainChoice(Collective::kAllReduce, 1000, DType::kF32).algorithm == favourite;
        const auto all = AlgorithmsOf(Collective::kAllReduce);
        if (ranks == &own) {
          EXPECT_EQ(has, std::find(all.begin(), all.end(), favourite) != all.end())
              << Name(favourite);
        }
        Work work = ranks->AllReduce(data.data(), data.data(), 1000, DType::kF32, ReduceOp::kSum);
        ASSERT_TRUE(work.Wait().ok()) << work.status();
        EXPECT_EQ(data, std::vector<float>(1000, expected)) << Name(favourite);
        for (const Collective collective :
             {Collective::kBroadcast, Collective::kReduce, Collective::kGather,
              Collective::kScatter, Collective::kAllGather, Collective::kAllToAll,
              Collective::kReduceScatter, Collective::kBarrier}) {
          std::vector<float> in(kSize, 1), out(kSize);
          EXPECT_TRUE(RunCollective(*ranks, collective, ranks->world_size(), Algorithm::kAuto,
                                    in.data(), out.data())
                          .ok())
              << Name(collective) << " by " << Name(favourite);
        }
      }
    });
  }
}

}  // namespace
}  // namespace muster
