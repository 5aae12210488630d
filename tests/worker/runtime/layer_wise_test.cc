// A layer-wise update rule, which needs norms of whole tensors, where tensors are cut over ranks.
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/worker/runtime/strategies_fixture.h"

namespace muster {
namespace {

using LayerWiseTest = StrategiesTest;

// Norms of whole tensors, although no rank has a whole one: with and without clipping, of full and
// of rounded gradients.
TEST_F(LayerWiseTest, LambMakesTheSameBitsWhereTensorsAreCut) {
  spec_.training.learning_rate = {.peak = 0.02};
  spec_.training.optimizer.weight_decay = 0.1;
  const Strategy strategies[] = {
      {.stage = 1},
      {.stage = 2, .replicas = 2},
      {.stage = 3, .replicas = 0},
      {.sync = SyncPath::kParameterServer},
      {.sync = SyncPath::kParameterServer, .servers = 2},
      {.sync = SyncPath::kParameterServer, .servers = 1, .mixed = true},
  };
  for (const bool always_adapt : {false, true}) {
    spec_.training.optimizer.rule = LambSpec{.always_adapt = always_adapt};
    for (const double clip_norm : {0.0, 0.05}) {
      spec_.training.clip_norm = clip_norm;
      for (const DType precision : {DType::kF32, DType::kBF16}) {
        spec_.training.precision = spec_.communication.gradients = precision;
        for (const int workers : {2, 5}) {
          const Result expected = TrainIn(workers, {});
          EXPECT_NE(expected.losses.back(), expected.losses.front());
          for (const Strategy& strategy : strategies) {
            SCOPED_TRACE(absl::StrCat(workers, " workers, ", ToString(strategy), ", clipped to ",
                                      clip_norm, ", ", Name(precision)));
            ExpectSame(TrainIn(workers, strategy), expected);
          }
        }
      }
    }
  }
}

// A rank that did not see the record applies the step of which it holds a part alone.
TEST_F(LayerWiseTest, RecordsHaveAllThatAPartNeedsToRollForward) {
  spec_.training.optimizer.rule = LambSpec{.always_adapt = true};
  spec_.training.clip_norm = 0.05;
  constexpr int kRanks = 3;
  constexpr Step kLast = 9;
  for (const int stage : {0, 2, 3}) {
    const View view = ViewIn(kRanks, {.stage = stage});
    auto rigs = MakeRigs(spec_, files_, kRanks);
    const ViewMap map = MapOf(view, rigs[0]->job->layout()).value();
    for (Rank rank = 0; rank < kRanks; ++rank) {
      rigs[rank]->replica->Initialize(spec_.training.seed, StateTag{}, map.map.RangesHeldBy(rank));
    }
    rigs[2]->control.refuse_record = kLast;
    rigs[0]->control.pause_at = rigs[1]->control.pause_at = kLast;
    auto mesh = MakeInProcessMesh(kRanks);
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        const auto communicator = Communicator::Create(std::move(mesh[rank])).value();
        rigs[rank]->outcome = rigs[rank]->trainer->Run(view, *communicator, 1, rigs[rank]->control);
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(rigs[2]->replica->counters().tag.step, kLast - 1);
    CommitRecord record = rigs[0]->control.records.back();
    ASSERT_EQ(record.step, kLast);
    EXPECT_EQ(record.tensor_factors.size(), rigs[0]->job->layout().tensors().size());
    EXPECT_NE(record.tensor_factors, std::vector<double>(record.tensor_factors.size(), 1.0));
    ASSERT_TRUE(rigs[2]->replica->CheckRecord(record).ok());
    rigs[2]->replica->Apply(record);
    for (const Shard& shard : map.map.shards()) {
      for (const Rank holder : shard.holders) {
        for (int array = 0; array < rigs[0]->replica->part().array_count(); ++array) {
          const auto values = rigs[holder]->replica->part().Of(array, shard.range);
          const auto owned = rigs[shard.holders[0]]->replica->part().Of(array, shard.range);
          EXPECT_TRUE(std::equal(values.begin(), values.end(), owned.begin()))
              << "stage " << stage << ", rank " << holder;
        }
      }
    }
    record.tensor_factors.pop_back();
    EXPECT_EQ(rigs[2]->replica->CheckRecord(record).code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace muster
