// Any strategy and any number of workers loads what any other has saved, and nobody ever has the
// whole.
#include "worker/runtime/saved_part.h"

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "state/view_map.h"
#include "tests/base/temporary_directory.h"
#include "tests/worker/runtime/small_job.h"
#include "tests/worker/runtime/trainer_rig.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/directory_owner.h"
#include "worker/checkpoint/part_plan.h"
#include "worker/runtime/checkpointer.h"

namespace muster {
namespace {

using Space = std::vector<std::vector<float>>;  // all arrays of the flat space

struct Fleet {
  int ranks = 1;
  Strategy strategy;
};

View ViewIn(const Fleet& fleet) {
  View view = ViewOf(fleet.ranks, 3);
  view.strategy = fleet.strategy;
  for (int i = 0; i < fleet.ranks; ++i) {
    view.members[i].incarnation = Incarnation{uint64_t(i) + 1};
    view.members[i].host = absl::StrCat("host-", i % 2);
  }
  return view;
}

// Does what a coordinator does with reports: waits for all parts, then lets the first publish.
class Reports : public CheckpointObserver {
 public:
  explicit Reports(int parts, bool may_fail = false) : missing_(parts), may_fail_(may_fail) {}
  void OnCheckpointDurable(const CheckpointReport& report) override {
    MutexLock lock(&mutex_);
    EXPECT_EQ(report.path.substr(report.path.size() - 13), "step-00000030");
    missing_ -= 1;
  }
  void OnCheckpointCommitted(const CheckpointReport& report,
                             absl::Span<const std::string> warnings) override {
    EXPECT_EQ(report.part, 0);
    EXPECT_TRUE(warnings.empty());
  }
  void OnCheckpointFailed(const StateTag&, const absl::Status& status) override {
    if (!may_fail_) ADD_FAILURE() << status;
  }
  void OnStateKept(const StateTag&, const absl::StatusOr<std::string>& path) override {
    MutexLock lock(&mutex_);
    EXPECT_TRUE(path.ok()) << path.status();
    if (path.ok()) kept_.push_back(*path);
    missing_ -= 1;
  }
  void AwaitAll() {
    MutexLock lock(&mutex_);
    const auto all = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return missing_ == 0; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(Condition(&all), absl::Seconds(60)));
  }
  std::vector<std::string> kept() {
    MutexLock lock(&mutex_);
    return kept_;
  }

 private:
  Mutex mutex_;
  int missing_ ABSL_GUARDED_BY(mutex_);
  const bool may_fail_;
  std::vector<std::string> kept_ ABSL_GUARDED_BY(mutex_);
};

class SavedPartTest : public testing::Test {
 protected:
  SavedPartTest() : spec_(SmallJob(files_, directory_.path())) {
    spec_.model = MlpSpec{.hidden = {23, 17}};  // no number of ranks divides its tensors
    spec_.checkpoints.directory = directory_.Path("checkpoints");
  }

  // Values that say where they belong; slots of frozen tensors are zero.
  Space Expected(const JobContext& job) const {
    Space space(static_cast<size_t>(job.rule().state_slots()) + 1,
                std::vector<float>(job.layout().padded_count()));
    for (const Tensor& tensor : job.layout().tensors()) {
      for (size_t array = 0; array < space.size(); ++array) {
        if (array > 0 && tensor.spec.frozen) continue;
        for (int64_t i = 0; i < tensor.count; ++i) {
          space[array][tensor.offset + i] =
              static_cast<float>(array) * 100'000 + static_cast<float>(tensor.offset + i);
        }
      }
    }
    return space;
  }

  std::vector<std::unique_ptr<Rig>> RigsWith(const View& view, const Space& space) {
    auto rigs = MakeRigs(spec_, files_, static_cast<int>(view.members.size()));
    const ViewMap map = MapOf(view, rigs[0]->job->layout()).value();
    for (Rank rank = 0; rank < static_cast<Rank>(rigs.size()); ++rank) {
      const absl::Status filled =
          rigs[rank]->replica->FillPart(map.map.RangesHeldBy(rank), [&](StatePart& part) {
            for (int array = 0; array < part.array_count(); ++array)
              part.Put(array, 0, space[array]);
            return ReplicaCounters{.tag = kTag, .update_count = 29, .nonfinite_in_row = 1};
          });
      EXPECT_TRUE(filled.ok()) << filled;
    }
    return rigs;
  }

  // What each rank of the view copies.
  std::vector<std::optional<SavedPart>> Copy(const View& view,
                                             std::vector<std::unique_ptr<Rig>>& rigs) {
    auto mesh = MakeInProcessMesh(static_cast<int>(rigs.size()));
    std::vector<std::optional<SavedPart>> parts(rigs.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < rigs.size(); ++rank) {
      threads.emplace_back([&, rank] {
        const auto communicator = Communicator::Create(std::move(mesh[rank])).value();
        std::optional<Rank> culprit;
        auto part =
            CopyPartToSave(view, *rigs[rank]->replica, *communicator, absl::Seconds(60), &culprit);
        ASSERT_TRUE(part.ok()) << part.status();
        parts[rank] = *std::move(part);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return parts;
  }

  std::string Save(const Fleet& fleet, const Space& space) {
    const View view = ViewIn(fleet);
    auto rigs = RigsWith(view, space);
    const auto parts = Copy(view, rigs);
    const Layout& layout = rigs[0]->job->layout();
    Reports reports(fleet.ranks);
    std::vector<std::unique_ptr<Checkpointer>> checkpointers;
    int64_t copied = 0;
    for (int rank = 0; rank < fleet.ranks; ++rank) {
      EXPECT_TRUE(parts[rank].has_value());
      const auto mine = static_cast<int64_t>(parts[rank]->state->arrays[0].size());
      EXPECT_EQ(mine, RangesOfParts(layout, fleet.ranks)[rank].count);
      copied += mine;
      checkpointers.push_back(std::make_unique<Checkpointer>(
          *rigs[rank]->job, files_, "fleet", view.members[rank].incarnation, reports));
      EXPECT_TRUE(checkpointers.back()->Begin(*parts[rank]));
    }
    EXPECT_EQ(copied, layout.padded_count());
    reports.AwaitAll();
    checkpointers[0]->Commit(kTag);
    const auto done = checkpointers[0]->WaitDone(kTag, absl::Now() + absl::Seconds(60));
    EXPECT_TRUE(done.ok()) << done.status();
    for (int rank = 1; rank < fleet.ranks; ++rank) {
      EXPECT_TRUE(checkpointers[rank]->WaitDone(kTag, absl::Now()).ok());
      EXPECT_FALSE(checkpointers[rank]->busy());
    }
    return done.ok() ? done->path : "";
  }

  // Every rank reads what it holds.
  void ExpectLoads(const std::string& path, const Fleet& fleet, const Space& space) {
    const View view = ViewIn(fleet);
    const auto job = std::make_unique<Rig>(spec_, files_);
    const Layout& layout = job->job->layout();
    const ViewMap map = MapOf(view, layout).value();
    const Checkpoint checkpoint = OpenCheckpoint(files_, path).value();
    EXPECT_EQ(checkpoint.manifest.progress.update_count, 29);
    EXPECT_EQ(checkpoint.manifest.ParametersSha256(), ParametersSha256(layout, space[0]));
    for (Rank rank = 0; rank < fleet.ranks; ++rank) {
      const std::vector<Range> ranges = map.map.RangesHeldBy(rank);
      StatePart part(ranges, static_cast<int>(space.size()));
      const auto into = [&part](int array) {
        return [&part, array](int64_t offset, absl::Span<const float> values) {
          part.Put(array, offset, values);
        };
      };
      ASSERT_TRUE(LoadParameters(files_, checkpoint, layout, ranges, into(0)).ok());
      std::vector<OptimizerSlotDestination> slots;
      for (const std::string& name : job->job->rule().slot_names()) {
        slots.push_back({name, into(static_cast<int>(slots.size()) + 1)});
      }
      ASSERT_TRUE(LoadOptimizer(files_, checkpoint, layout, ranges, slots).ok());
      StatePart expected(ranges, static_cast<int>(space.size()));
      for (int array = 0; array < expected.array_count(); ++array) {
        expected.Put(array, 0, space[array]);
        EXPECT_EQ(part.Array(array), expected.Array(array)) << "rank " << rank;
      }
    }
  }

  static constexpr StateTag kTag = {2, 30, 3};
  PosixFileSystem files_;
  TemporaryDirectory directory_;
  JobSpec spec_;
};

TEST_F(SavedPartTest, AnyStrategyAndNumberLoadsWhatAnyOtherSaved) {
  const std::vector<Fleet> fleets = {
      {4, {.stage = 3}},
      {6, {.stage = 1, .replicas = 0}},
      {2, {.stage = 2, .replicas = 1}},
      {1, {.stage = 3}},
      {3, {}},
      {5, {.stage = 3, .replicas = 2}},
      {1, {}},
      {12, {.stage = 2}},  // more than there are tensors
  };
  const Space space = Expected(*Rig(spec_, files_).job);
  for (const Fleet& saving : fleets) {
    const std::string path = Save(saving, space);
    for (const Fleet& loading : fleets) {
      SCOPED_TRACE(absl::StrCat(saving.ranks, " ranks of stage ", saving.strategy.stage, " to ",
                                loading.ranks, " of stage ", loading.strategy.stage));
      ASSERT_NO_FATAL_FAILURE(ExpectLoads(path, loading, space));
    }
  }
}

TEST_F(SavedPartTest, FrozenTensorsAreSavedAndHaveNoSlots) {
  spec_.training.optimizer.groups = {{.tensors = {"fc2.*"}, .frozen = true}};
  const Space space = Expected(*Rig(spec_, files_).job);
  const std::string path = Save({4, {.stage = 3}}, space);
  for (const Fleet& loading : {Fleet{3, {}}, Fleet{6, {.stage = 2}}}) {
    ExpectLoads(path, loading, space);
  }
}

// Without a coordinator nobody says that all parts are durable: each looks for them.
TEST_F(SavedPartTest, PartsOfASealedStateArePublishedByWhoSeesThemAll) {
  const Fleet fleet{3, {.stage = 2}};
  const View view = ViewIn(fleet);
  const Space space = Expected(*Rig(spec_, files_).job);
  auto rigs = RigsWith(view, space);
  const auto parts = Copy(view, rigs);
  for (const bool first_publishes : {true, false}) {
    ASSERT_TRUE(files_.RemoveAll(spec_.checkpoints.directory).ok());
    Reports reports(fleet.ranks);
    std::vector<std::unique_ptr<Checkpointer>> checkpointers;
    for (int rank : {2, 0, 1}) {
      checkpointers.push_back(std::make_unique<Checkpointer>(
          *rigs[rank]->job, files_, "fleet", view.members[rank].incarnation, reports));
      const bool waits = first_publishes ? rank > 0 : rank != 1;
      ASSERT_TRUE(checkpointers.back()->Keep(*parts[rank], /*sealed=*/true,
                                             waits ? absl::Hours(1) : absl::ZeroDuration()));
    }
    reports.AwaitAll();
    const std::string path = spec_.checkpoints.directory + "/step-00000030";
    EXPECT_EQ(reports.kept(), std::vector<std::string>(3, path));
    EXPECT_EQ(files_.ListDirectory(spec_.checkpoints.directory).value().size(), 1u);
    ExpectLoads(path, {2, {}}, space);
  }
}

// Whoever sees all parts first puts them together; the others find that.
TEST_F(SavedPartTest, PartsOfASealedStateAreSetAsideOnceWhereAnotherJobHasTakenOver) {
  const Fleet fleet{3, {.stage = 2}};
  const View view = ViewIn(fleet);
  const Space space = Expected(*Rig(spec_, files_).job);
  auto rigs = RigsWith(view, space);
  const auto parts = Copy(view, rigs);
  const std::string& root = spec_.checkpoints.directory;
  ASSERT_TRUE(files_.CreateDirectories(root).ok());
  ASSERT_TRUE(TakeDirectory(files_, root, {"other", "k"}, Incarnation{9}, absl::Now()).ok());
  Reports reports(fleet.ranks, /*may_fail=*/true);
  std::vector<std::unique_ptr<Checkpointer>> checkpointers;
  for (int rank = 0; rank < fleet.ranks; ++rank) {
    checkpointers.push_back(std::make_unique<Checkpointer>(
        *rigs[rank]->job, files_, "fleet", view.members[rank].incarnation, reports));
    ASSERT_TRUE(checkpointers.back()->Keep(*parts[rank], /*sealed=*/true,
                                           rank > 0 ? absl::Hours(1) : absl::ZeroDuration()));
  }
  reports.AwaitAll();
  const std::string path = root + "/unsealed-step-00000030-0000000000000001";
  EXPECT_EQ(reports.kept(), std::vector<std::string>(3, path));
  EXPECT_EQ(files_.ListDirectory(root).value().size(), 2u) << "but for it only owner.json";
  ExpectLoads(path, {2, {}}, space);
}

}  // namespace
}  // namespace muster
