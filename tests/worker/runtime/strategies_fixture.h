// The small job under any strategy, in a fleet without sessions or processes.
#ifndef MUSTER_TESTS_WORKER_RUNTIME_STRATEGIES_FIXTURE_H_
#define MUSTER_TESTS_WORKER_RUNTIME_STRATEGIES_FIXTURE_H_

#include <algorithm>
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
        if (!dead_layer_.empty()) Kill(rig);
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

  static void ExpectSame(const Result& result, const Result& expected) {
    EXPECT_EQ(result.arrays, expected.arrays);
    EXPECT_EQ(result.hash, expected.hash);
    EXPECT_EQ(result.losses, expected.losses);
    ASSERT_EQ(result.evaluations.size(), expected.evaluations.size());
    for (size_t i = 0; i < expected.evaluations.size(); ++i) {
      EXPECT_EQ(result.evaluations[i].test_loss, expected.evaluations[i].test_loss);
    }
  }

  // Sets the layer's biases so low that nothing passes it, in the part that the rank holds.
  void Kill(Rig& rig) const {
    const Tensor& bias = *rig.job->layout().Find(absl::StrCat(dead_layer_, ".bias"));
    const std::vector<float> low(static_cast<size_t>(bias.count), -1e6f);
    const StatePart& held = rig.replica->part();
    StatePart part(held.ranges(), held.array_count());
    part.CopyFrom(held);
    ASSERT_TRUE(rig.replica
                    ->FillPart(part.ranges(),
                               [&](StatePart& filled) -> absl::StatusOr<ReplicaCounters> {
                                 filled.CopyFrom(part);
                                 filled.Put(0, bias.offset, low);
                                 return ReplicaCounters{};
                               })
                    .ok());
  }

  PosixFileSystem files_;
  TemporaryDirectory directory_;
  JobSpec spec_;
  std::string dead_layer_;
};

}  // namespace muster

#endif  // MUSTER_TESTS_WORKER_RUNTIME_STRATEGIES_FIXTURE_H_
