// Jobs whose gradients are compressed: what their workers carry from step to step goes with them
// through switches, redone steps and deaths, the same under every strategy; and they learn.
#include <algorithm>
#include <cmath>
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
#include "worker/compression/gradient_codec.h"

namespace muster {
namespace {

constexpr GradientCompression kInt8 = {.kind = GradientCompression::Kind::kInt8};
constexpr GradientCompression kTopK = {.kind = GradientCompression::Kind::kTopK,
                                       .top_k_fraction = 0.02};

// Workers and parameter servers that go from view to view, as far as their own memory is concerned.
class Fleet {
 public:
  // Every strategy to come has so many servers at most.
  Fleet(const JobSpec& spec, FileSystem& files, int workers, int servers) : spec_(spec) {
    for (int i = 0; i < workers + servers; ++i) {
      rigs_.push_back(std::make_unique<Rig>(spec, files, /*samples=*/i < workers));
      if (i < workers) workers_.push_back(rigs_.back().get());
      if (i >= workers) servers_.push_back(rigs_.back().get());
    }
  }

  // The next view, of all who live and as many servers as the strategy takes.
  void Enter(const Strategy& strategy) {
    std::vector<Rig*> members = workers_;
    members.insert(members.end(), servers_.begin(), servers_.begin() + strategy.servers);
    View view = ViewOf(static_cast<int>(members.size()), ++epoch_);
    view.strategy = strategy;
    for (size_t i = 0; i < members.size(); ++i) {
      view.members[i].incarnation = Incarnation{i + 1};
      if (i >= workers_.size()) view.members[i].role = MemberRole::kParameterServer;
    }
    const Layout& layout = workers_[0]->job->layout();
    const ViewMap map = MapOf(view, layout).value();
    for (size_t i = 0; i < members.size(); ++i) {
      const std::vector<Range> ranges = map.map.RangesHeldBy(static_cast<Rank>(i));
      Replica& replica = *members[i]->replica;
      if (members_.empty()) {
        replica.Initialize(spec_.training.seed, StateTag{}, ranges);
      } else {
        Move(replica, ranges, /*holds=*/Contains(members_, members[i]));
      }
    }
    for (Rig* rig : members) rig->replica->KeepOnly(/*newest=*/true);
    members_ = members;
    view_ = view;
    map_ = map;
  }

  // Steps up to `last`, after which all pause.
  void Train(Step last) {
    Run([last](Rig& rig, int) { rig.control.pause_at = last; });
    for (Rig* rig : members_) {
      EXPECT_EQ(rig->outcome.kind, TrainingOutcome::Kind::kPaused) << rig->outcome.status;
      EXPECT_EQ(rig->replica->counters().tag.step, last);
    }
  }
  // The next step is prepared by all, and committed by nobody.
  void PrepareInVain() {
    const Step step = workers_[0]->replica->counters().tag.step + 1;
    Run([step](Rig& rig, int) { rig.control.refuse_prepared = step; });
    for (Rig* rig : members_) {
      EXPECT_EQ(rig->outcome.kind, TrainingOutcome::Kind::kStopped);
      rig->control.refuse_prepared = -1;
    }
  }
  // The next step is committed, but one worker does not hear of it in time, and rolls forward.
  void RollOneForward(int worker) {
    const Step step = workers_[0]->replica->counters().tag.step + 1;
    Run([&](Rig& rig, int rank) {
      rig.control.pause_at = step;
      if (rank == worker) rig.control.refuse_record = step;
    });
    Rig& behind = *workers_[static_cast<size_t>(worker)];
    EXPECT_EQ(behind.replica->counters().tag.step, step - 1);
    behind.replica->Apply(workers_[worker == 0 ? 1 : 0]->control.records.back());
    behind.control.refuse_record = -1;
  }
  // For good; the state is taken from those who hold it.
  void Kill(int worker) { workers_.erase(workers_.begin() + worker); }

  // Steps from the next one on, until something ends them.
  void Run(absl::FunctionRef<void(Rig&, int)> prepare) {
    const int ranks = static_cast<int>(members_.size());
    const Step first = members_[0]->replica->counters().tag.step + 1;
    auto mesh = MakeInProcessMesh(ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) prepare(*members_[static_cast<size_t>(rank)], rank);
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        const auto communicator =
            Communicator::Create(std::move(mesh[static_cast<size_t>(rank)])).value();
        Rig& rig = *members_[static_cast<size_t>(rank)];
        rig.outcome = rig.trainer->Run(view_, *communicator, first, rig.control);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<float> Parameters() const { return Gather(0); }
  std::vector<Rig*>& workers() { return workers_; }

 private:
  static bool Contains(const std::vector<Rig*>& rigs, const Rig* rig) {
    return std::find(rigs.begin(), rigs.end(), rig) != rigs.end();
  }

  // Gives a replica its part of the next view, from those who own it in this one.
  void Move(Replica& to, const std::vector<Range>& ranges, bool holds) {
    if (holds && ranges == to.part().ranges()) return;
    to.BeginMove(ranges, /*receives_all=*/!holds);
    for (const Shard& shard : map_->map.shards()) {
      const Replica& owner = *members_[static_cast<size_t>(shard.holders[0])]->replica;
      for (const Range& range : ranges) {
        const int64_t from = std::max(range.offset, shard.range.offset);
        const Range both{from, std::min(range.end(), shard.range.end()) - from};
        if (both.count <= 0 || to.part().Holds(both)) continue;
        std::vector<std::byte> bytes(static_cast<size_t>(
            both.count * Replica::FloatsPerElement(to.rule()) * int64_t{sizeof(float)}));
        owner.PackRange(both, absl::MakeSpan(bytes));
        to.UnpackRange(both, bytes);
      }
    }
    to.FinishMove(members_[0]->replica->counters());
  }

  std::vector<float> Gather(int array) const {
    std::vector<float> all(static_cast<size_t>(workers_[0]->job->layout().padded_count()));
    for (const Shard& shard : map_->map.shards()) {
      const StatePart& part = members_[static_cast<size_t>(shard.holders[0])]->replica->part();
      const auto owned = part.Of(array, shard.range);
      std::copy(owned.begin(), owned.end(), all.begin() + shard.range.offset);
    }
    return all;
  }

  const JobSpec& spec_;
  std::vector<std::unique_ptr<Rig>> rigs_;
  std::vector<Rig*> workers_;
  std::vector<Rig*> servers_;
  Epoch epoch_ = 0;
  std::vector<Rig*> members_;  // of the view in force
  View view_;
  std::optional<ViewMap> map_;
};

const Strategy kReplicate = {};
const Strategy kStage1 = {.stage = 1};
const Strategy kStage2 = {.stage = 2};
const Strategy kStage3 = {.stage = 3, .replicas = 2};
const Strategy kOnWorkers = {.sync = SyncPath::kParameterServer};
const Strategy kServers = {.sync = SyncPath::kParameterServer, .servers = 2};
const Strategy kMixed = {.sync = SyncPath::kParameterServer, .servers = 1, .mixed = true};

class CompressionTest : public testing::Test {
 protected:
  CompressionTest() : spec_(SmallJob(files_, directory_.path())) {
    spec_.training.steps = 20;
    spec_.communication.gradients = DType::kBF16;
    spec_.communication.bucket_bytes = 4096;
  }

  PosixFileSystem files_;
  TemporaryDirectory directory_;
  JobSpec spec_;
};

TEST_F(CompressionTest, SwitchesLeaveNoTrace) {
  for (const GradientCompression& compression : {kInt8, kTopK}) {
    spec_.communication.compression = compression;
    Fleet one(spec_, files_, 3, 2);
    one.Enter(kReplicate);
    one.Train(20);
    const std::vector<Strategy> schedules[] = {
        {kReplicate, kStage2, kServers, kReplicate},
        {kStage3, kMixed, kReplicate, kOnWorkers},
        {kServers, kStage1, kMixed, kStage3},
    };
    for (const std::vector<Strategy>& schedule : schedules) {
      Fleet fleet(spec_, files_, 3, 2);
      Step last = 0;
      for (const Strategy& strategy : schedule) {
        fleet.Enter(strategy);
        fleet.Train(last += 5);
      }
      EXPECT_EQ(fleet.Parameters(), one.Parameters()) << "from " << ToString(schedule[0]);
      for (size_t worker = 0; worker < 3; ++worker) {
        const auto carried = fleet.workers()[worker]->replica->buffers().residuals().carried();
        const auto expected = one.workers()[worker]->replica->buffers().residuals().carried();
        EXPECT_EQ(carried, expected) << "worker " << worker;
        EXPECT_EQ(carried.empty(), !Carries(compression));
      }
    }
  }
}

// A step that was prepared and dropped does not count, one that was rolled forward does: with what
// was carried before and after it.
TEST_F(CompressionTest, DroppedAndRolledForwardStepsCountAsTheyShould) {
  spec_.communication.compression = kTopK;
  Fleet one(spec_, files_, 3, 0);
  one.Enter(kReplicate);
  one.Train(20);
  for (const Strategy& strategy : {kReplicate, kStage2, kOnWorkers}) {
    Fleet fleet(spec_, files_, 3, 0);
    fleet.Enter(strategy);
    fleet.Train(4);
    fleet.PrepareInVain();
    fleet.Train(8);
    fleet.RollOneForward(1);
    fleet.Train(20);
    EXPECT_EQ(fleet.Parameters(), one.Parameters()) << ToString(strategy);
  }
}

// What a worker carried dies with it, under every strategy alike.
TEST_F(CompressionTest, ADeathIsTheSameUnderEveryStrategy) {
  for (const GradientCompression& compression : {kInt8, kTopK}) {
    spec_.communication.compression = compression;
    std::vector<float> expected;
    for (const Strategy& strategy :
         {kReplicate, kStage1, kStage2, kStage3, kOnWorkers, kServers, kMixed}) {
      Fleet fleet(spec_, files_, 4, 2);
      fleet.Enter(strategy);
      fleet.Train(9);
      fleet.Kill(1);
      fleet.Enter(strategy);
      fleet.Train(20);
      if (expected.empty()) expected = fleet.Parameters();
      EXPECT_EQ(fleet.Parameters(), expected) << ToString(strategy);
    }
  }
}

TEST_F(CompressionTest, FrozenTensorsAndClippingAreTheSameUnderEveryStrategy) {
  spec_.training.optimizer.groups = {{.tensors = {"fc1.*"}, .frozen = true}};
  spec_.training.clip_norm = 0.05;
  for (const GradientCompression& compression : {kInt8, kTopK}) {
    spec_.communication.compression = compression;
    std::vector<float> expected;
    for (const Strategy& strategy : {kReplicate, kStage3, kServers}) {
      Fleet fleet(spec_, files_, 3, 2);
      fleet.Enter(strategy);
      fleet.Train(20);
      if (expected.empty()) expected = fleet.Parameters();
      EXPECT_EQ(fleet.Parameters(), expected) << ToString(strategy);
    }
  }
}

// Parameters that run away make gradients that are not finite: no such step is taken, and what its
// codes lacked is dropped with it.
TEST_F(CompressionTest, StepsThatAreNotFiniteAreSkippedUnderEveryStrategy) {
  spec_.training.learning_rate = {.peak = 1e30};
  spec_.training.max_nonfinite_steps = 3;
  for (const GradientCompression& compression : {kInt8, kTopK}) {
    spec_.communication.compression = compression;
    std::vector<float> expected;
    for (const Strategy& strategy : {kReplicate, kStage2, kServers}) {
      Fleet fleet(spec_, files_, 2, 2);
      fleet.Enter(strategy);
      fleet.Run([](Rig&, int) {});
      for (Rig* rig : fleet.workers()) {
        EXPECT_EQ(rig->outcome.kind, TrainingOutcome::Kind::kJobFailed);
        EXPECT_EQ(rig->replica->counters().nonfinite_in_row, 3);
        for (const float value : rig->replica->buffers().residuals().carried()) {
          ASSERT_TRUE(std::isfinite(value));
        }
      }
      if (expected.empty()) expected = fleet.Parameters();
      EXPECT_EQ(fleet.Parameters(), expected) << ToString(strategy);
    }
  }
}

// Against gradients that are sent in full.
TEST_F(CompressionTest, LearnsNearlyAsWell) {
  spec_.training.steps = 250;
  spec_.training.evaluate_every = 249;
  const auto train_with = [&](DType gradients, const GradientCompression& compression) {
    spec_.communication.gradients = gradients;
    spec_.communication.compression = compression;
    Fleet fleet(spec_, files_, 3, 0);
    fleet.Enter(kReplicate);
    fleet.Train(250);
    return fleet.workers()[0]->control.evaluations.at(0);
  };
  const EvaluationMetrics full = train_with(DType::kF32, {});
  EXPECT_NEAR(train_with(DType::kBF16, kInt8).test_loss, full.test_loss, 0.02);
  // AdamW makes small steps of what comes seldom.
  EXPECT_GT(train_with(DType::kBF16, kTopK).test_accuracy, 0.9);
}

}  // namespace
}  // namespace muster
