// Every strategy takes the same steps, bit for bit, and keeps only what is its own.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "state/view_map.h"
#include "tests/base/temporary_directory.h"
#include "tests/worker/runtime/small_job.h"
#include "tests/worker/runtime/trainer_rig.h"

namespace muster {
namespace {

struct Way {
  int stage = 0;
  int replicas = 1;
  Algorithm algorithm = Algorithm::kAuto;
};

class StrategiesTest : public testing::Test {
 protected:
  StrategiesTest() : spec_(SmallJob(files_, directory_.path())) { spec_.training.steps = 12; }

  // As many parameter servers as the strategy takes stand behind the workers.
  View ViewIn(int workers, const Strategy& strategy) const {
    const int ranks = workers + strategy.servers;
    View view = ViewOf(ranks, 1);
    view.strategy = strategy;
    for (int i = 0; i < ranks; ++i) {
      view.members[i].incarnation = Incarnation{uint64_t(i) + 1};
      if (i >= workers) view.members[i].role = MemberRole::kParameterServer;
    }
    return view;
  }

  // The state after the job's steps, the hash that the ranks make of it, and the losses.
  struct Result {
    std::vector<std::vector<float>> arrays;
    std::string hash;
    std::vector<double> losses;
    std::vector<EvaluationMetrics> evaluations;
  };
  Result TrainIn(int workers, const Strategy& strategy) {
    const View view = ViewIn(workers, strategy);
    const int ranks = static_cast<int>(view.members.size());
    auto rigs = MakeRigs(spec_, files_, workers);
    while (static_cast<int>(rigs.size()) < ranks) {
      rigs.push_back(std::make_unique<Rig>(spec_, files_, /*samples=*/false));
    }
    const Layout& layout = rigs[0]->job->layout();
    const ViewMap map = MapOf(view, layout).value();
    auto mesh = MakeInProcessMesh(ranks);
    std::vector<std::string> hashes(ranks);
    std::vector<std::optional<EvaluationMetrics>> finals(ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        const auto communicator = Communicator::Create(std::move(mesh[rank])).value();
        Rig& rig = *rigs[rank];
        rig.replica->Initialize(spec_.training.seed, StateTag{}, map.map.RangesHeldBy(rank));
        rig.outcome = rig.trainer->Run(view, *communicator, 1, rig.control);
        ASSERT_EQ(rig.outcome.kind, TrainingOutcome::Kind::kPaused) << rig.outcome.status;
        std::optional<Rank> culprit;
        const auto measures =
            rig.trainer->MeasureFinal(view, *communicator, spec_.training.steps, &culprit);
        ASSERT_TRUE(measures.ok()) << measures.status();
        hashes[rank] = measures->parameters_sha256;
        finals[rank] = measures->evaluation;
      });
    }
    for (std::thread& thread : threads) thread.join();

    Result result;
    result.losses = rigs[0]->control.losses;
    result.evaluations = rigs[0]->control.evaluations;
    result.hash = hashes[0];
    for (Rank rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(hashes[rank], rank < workers ? hashes[0] : "") << "rank " << rank;
      EXPECT_EQ(rigs[rank]->control.losses, result.losses) << "rank " << rank;
    }
    // The same as the step loop measures.
    EXPECT_EQ(finals[0].has_value(), rigs[0]->job->has_test());
    if (finals[0].has_value() && !result.evaluations.empty() &&
        result.evaluations.back().step == finals[0]->step) {
      EXPECT_EQ(finals[0]->test_loss, result.evaluations.back().test_loss);
    }
    result.arrays.assign(static_cast<size_t>(rigs[0]->job->rule().state_slots()) + 1,
                         std::vector<float>(layout.padded_count()));
    for (const Shard& shard : map.map.shards()) {
      for (size_t array = 0; array < result.arrays.size(); ++array) {
        const int a = static_cast<int>(array);
        const auto owned = rigs[shard.holders[0]]->replica->part().Of(a, shard.range);
        std::copy(owned.begin(), owned.end(), result.arrays[array].begin() + shard.range.offset);
        for (Rank holder : shard.holders) {
          const auto copy = rigs[holder]->replica->part().Of(a, shard.range);
          EXPECT_TRUE(std::equal(copy.begin(), copy.end(), owned.begin())) << "replicas differ";
        }
      }
    }
    EXPECT_EQ(result.hash, ParametersSha256(layout, result.arrays[0]));
    for (Rank rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(rigs[rank]->replica->part().element_count(), map.map.CountHeldBy(rank))
          << "more is kept than the view asks for";
    }
    return result;
  }

  PosixFileSystem files_;
  TemporaryDirectory directory_;
  JobSpec spec_;
};

TEST_F(StrategiesTest, EveryStageMakesTheSameBits) {
  spec_.training.evaluate_every = 5;
  for (int ranks : {1, 2, 3, 5}) {
    // Several micro-batches for each rank; one for each; fewer than ranks.
    for (int micro_batch : {4, 48 / 3, 48}) {
      spec_.training.micro_batch = micro_batch;
      const Result expected = TrainIn(ranks, {});
      ASSERT_EQ(expected.losses.size(), 12u);
      for (const Way& way : {Way{1, 0}, Way{1, 1}, Way{2, 1}, Way{2, 2}, Way{3, 0}, Way{3, 1}}) {
        SCOPED_TRACE(absl::StrCat(ranks, " ranks, micro-batches of ", micro_batch, ", stage ",
                                  way.stage, ", replicas ", way.replicas));
        const Result result = TrainIn(ranks, {.stage = way.stage, .replicas = way.replicas});
        EXPECT_EQ(result.arrays, expected.arrays);
        EXPECT_EQ(result.hash, expected.hash);
        EXPECT_EQ(result.losses, expected.losses);
        ASSERT_EQ(result.evaluations.size(), expected.evaluations.size());
        for (size_t i = 0; i < expected.evaluations.size(); ++i) {
          EXPECT_EQ(result.evaluations[i].test_loss, expected.evaluations[i].test_loss);
        }
      }
    }
  }
}

// Servers of their own, on the workers, and both, with fewer and with more workers than servers.
TEST_F(StrategiesTest, ParameterServersMakeTheSameBits) {
  spec_.training.evaluate_every = 5;
  for (int workers : {1, 2, 3, 5}) {
    for (int micro_batch : {4, 48}) {
      spec_.training.micro_batch = micro_batch;
      const Result expected = TrainIn(workers, {});
      for (int servers : {0, 1, 2, 4}) {
        for (bool mixed : {false, true}) {
          if (mixed && servers == 0) continue;
          SCOPED_TRACE(absl::StrCat(workers, " workers, ", servers, " servers, micro-batches of ",
                                    micro_batch, mixed ? ", mixed" : ""));
          const Result result = TrainIn(
              workers, {.sync = SyncPath::kParameterServer, .servers = servers, .mixed = mixed});
          EXPECT_EQ(result.arrays, expected.arrays);
          EXPECT_EQ(result.hash, expected.hash);
          EXPECT_EQ(result.losses, expected.losses);
          ASSERT_EQ(result.evaluations.size(), expected.evaluations.size());
          for (size_t i = 0; i < expected.evaluations.size(); ++i) {
            EXPECT_EQ(result.evaluations[i].test_loss, expected.evaluations[i].test_loss);
          }
        }
      }
    }
  }
}

TEST_F(StrategiesTest, StrategiesMakeTheSameBitsOfRoundedTypes) {
  spec_.training.evaluate_every = 5;
  struct Types {
    DType parameters;
    DType gradients;
  };
  for (const Types& types : {Types{DType::kBF16, DType::kBF16}, Types{DType::kF32, DType::kBF16},
                             Types{DType::kF32, DType::kF16}}) {
    spec_.training.precision = types.parameters;
    spec_.communication.gradients = types.gradients;
    for (int micro_batch : {4, 16, 48}) {
      const int workers = 3;
      spec_.training.micro_batch = micro_batch;
      const Result expected = TrainIn(workers, {});
      const Strategy strategies[] = {
          {.stage = 1},
          {.stage = 2, .replicas = 2},
          {.stage = 3, .replicas = 0},
          {.stage = 3},
          {.sync = SyncPath::kParameterServer},
          {.sync = SyncPath::kParameterServer, .servers = 2},
          {.sync = SyncPath::kParameterServer, .servers = 1, .mixed = true},
      };
      for (const Strategy& strategy : strategies) {
        SCOPED_TRACE(absl::StrCat(Name(types.parameters), " ", Name(types.gradients),
                                  ", micro-batches of ", micro_batch, ", ", ToString(strategy)));
        const Result result = TrainIn(workers, strategy);
        EXPECT_EQ(result.arrays, expected.arrays);
        EXPECT_EQ(result.hash, expected.hash);
        EXPECT_EQ(result.losses, expected.losses);
        ASSERT_EQ(result.evaluations.size(), expected.evaluations.size());
        for (size_t i = 0; i < expected.evaluations.size(); ++i) {
          EXPECT_EQ(result.evaluations[i].test_loss, expected.evaluations[i].test_loss);
        }
      }
    }
  }
}

// So many blocks of like size that those on their way take less memory than all together.
TEST_F(StrategiesTest, ManyBlocksGoThroughFewBuffers) {
  spec_.model = MlpSpec{.hidden = std::vector<int32_t>(9, 24)};
  spec_.training.micro_batch = 48 / 3;
  spec_.training.evaluate_every = 5;
  for (int ranks : {1, 3, 4}) {
    const Result expected = TrainIn(ranks, {});
    for (const Strategy& strategy :
         {Strategy{.stage = 1}, Strategy{.stage = 2}, Strategy{.stage = 3},
          Strategy{.sync = SyncPath::kParameterServer, .servers = 2}}) {
      SCOPED_TRACE(absl::StrCat(ranks, " ranks, ", ToString(strategy)));
      const Result result = TrainIn(ranks, strategy);
      EXPECT_EQ(result.arrays, expected.arrays);
      EXPECT_EQ(result.hash, expected.hash);
      EXPECT_EQ(result.losses, expected.losses);
    }
  }
}

TEST_F(StrategiesTest, FrozenTensorsStayAsTheyAreInEveryStage) {
  spec_.training.optimizer.groups = {{.tensors = {"fc1.*"}, .frozen = true}};
  const Result expected = TrainIn(3, {});
  for (int stage : {1, 2, 3}) {
    EXPECT_EQ(TrainIn(3, {.stage = stage}).arrays, expected.arrays) << "stage " << stage;
  }
  EXPECT_EQ(TrainIn(3, {.sync = SyncPath::kParameterServer, .servers = 2}).arrays, expected.arrays);
}

TEST_F(StrategiesTest, ClippedStepsAreTheSameInEveryStage) {
  spec_.training.clip_norm = 0.05;
  const Result expected = TrainIn(4, {});
  for (int stage : {1, 2, 3}) {
    EXPECT_EQ(TrainIn(4, {.stage = stage}).arrays, expected.arrays) << "stage " << stage;
  }
  EXPECT_EQ(TrainIn(4, {.sync = SyncPath::kParameterServer, .servers = 3, .mixed = true}).arrays,
            expected.arrays);
}

}  // namespace
}  // namespace muster
