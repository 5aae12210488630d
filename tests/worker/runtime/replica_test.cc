#include "worker/runtime/replica.h"

#include <atomic>
#include <thread>

#include "gtest/gtest.h"

namespace muster {
namespace {

Layout SmallLayout() {
  return Layout::Create(
             {{.name = "w", .shape = {30, 7}, .initializer = Initializer::kNormal, .scale = 1},
              {.name = "b", .shape = {30}, .decay = false}},
             128)
      .value();
}

CommitRecord Record(Step step, bool finite = true) {
  return {.step = step, .epoch = 4, .samples = 8, .gradient_norm = 0.5, .finite = finite};
}

class ReplicaTest : public testing::Test {
 protected:
  ReplicaTest()
      : layout_(SmallLayout()),
        rule_(UpdateRule::Create(AdamWOptions{}, layout_).value()),
        rate_{.peak = 0.1, .total_steps = 1000},
        replica_(layout_, *rule_, rate_, 1.0) {
    replica_.Initialize(5, StateTag{2, 0, 1});
  }

  std::vector<float> Gradient(Step step) const {
    std::vector<float> gradient(layout_.padded_count());
    for (const Tensor& tensor : layout_.tensors()) {
      for (int64_t i = 0; i < tensor.count; ++i) {
        gradient[tensor.offset + i] = static_cast<float>((i * 37 + step * 11) % 19) - 9;
      }
    }
    return gradient;
  }

  const Layout layout_;
  const std::unique_ptr<UpdateRule> rule_;
  const LearningRateOptions rate_;
  Replica replica_;
};

TEST_F(ReplicaTest, CountersFollowTheRecords) {
  replica_.Apply(Record(1), Gradient(1));
  replica_.Apply(Record(2, false), Gradient(2));
  replica_.Apply(Record(3, false), Gradient(3));
  EXPECT_EQ(replica_.counters().nonfinite_in_row, 2);
  replica_.Apply(Record(4), Gradient(4));
  const ReplicaCounters counters = replica_.counters();
  EXPECT_EQ(counters.tag, (StateTag{2, 4, 4}));
  EXPECT_EQ(counters.update_count, 2);
  EXPECT_EQ(counters.skipped_steps, 2);
  EXPECT_EQ(counters.nonfinite_in_row, 0);
}

TEST_F(ReplicaTest, NonfiniteStepChangesNoBit) {
  replica_.Apply(Record(1), Gradient(1));
  const auto before = replica_.Snapshot();
  replica_.Apply(Record(2, false), Gradient(2));
  EXPECT_EQ(replica_.Snapshot()->arrays, before->arrays);
}

// Copies the state at a random moment, then follows the steps: never one missed or told twice.
class Follower : public ReplicaListener {
 public:
  void OnApplied(const CommitRecord& record, const StateTag&,
                 std::shared_ptr<const std::vector<float>> gradient) override {
    steps.emplace_back(record, std::move(gradient));
  }
  std::vector<std::pair<CommitRecord, std::shared_ptr<const std::vector<float>>>> steps;
};

TEST_F(ReplicaTest, SnapshotAndLaterStepsMakeTheSameState) {
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (Step step = 1; step <= 300; ++step) replica_.Apply(Record(step), Gradient(step));
    done = true;
  });
  std::vector<std::unique_ptr<Follower>> followers;
  std::vector<std::shared_ptr<const ReplicaSnapshot>> snapshots;
  while (!done && followers.size() < 50) {
    followers.push_back(std::make_unique<Follower>());
    snapshots.push_back(replica_.SnapshotAndListen(followers.back().get()));
    std::this_thread::yield();
  }
  writer.join();
  const auto expected = replica_.Snapshot();
  for (size_t i = 0; i < followers.size(); ++i) {
    replica_.StopListening(followers[i].get());
    Replica copy(layout_, *rule_, rate_, 1.0);
    ASSERT_TRUE(
        copy.Fill([&](absl::Span<float> parameters, absl::Span<const absl::Span<float>> slots) {
              const auto& arrays = snapshots[i]->arrays;
              std::copy(arrays[0].begin(), arrays[0].end(), parameters.begin());
              for (size_t s = 0; s < slots.size(); ++s) {
                std::copy(arrays[s + 1].begin(), arrays[s + 1].end(), slots[s].begin());
              }
              return snapshots[i]->counters;
            })
            .ok());
    for (const auto& [record, gradient] : followers[i]->steps) copy.Apply(record, *gradient);
    EXPECT_EQ(copy.Snapshot()->arrays, expected->arrays) << "snapshot " << i;
    EXPECT_EQ(copy.counters().tag, expected->counters.tag);
  }
}

// The state moves to parts and back as it would over a mesh, and steps go on as if it had not.
TEST_F(ReplicaTest, PartsTakeTheSameStepsAsTheWhole) {
  Replica whole(layout_, *rule_, rate_, 1.0);
  whole.Initialize(5, StateTag{2, 0, 1});
  const std::vector<Range> part = {{10, 50}, {100, 33}};
  replica_.BeginMove(part, /*receives_all=*/false);
  EXPECT_TRUE(replica_.whole()) << "until it is known to be held by all";
  replica_.KeepOnly(/*newest=*/true);
  EXPECT_EQ(replica_.part().element_count(), 83);
  for (Step step = 1; step <= 3; ++step) {
    whole.Apply(Record(step), Gradient(step));
    replica_.Apply(Record(step), Gradient(step));
  }
  for (const Range& range : part) {
    for (int array = 0; array < replica_.part().array_count(); ++array) {
      EXPECT_EQ(replica_.part().Of(array, range), whole.part().Of(array, range));
    }
  }
}

TEST_F(ReplicaTest, AMoveThatFailsLeavesWhatIsHeld) {
  replica_.Apply(Record(1), Gradient(1));
  const auto before = replica_.Snapshot();
  replica_.BeginMove({{0, 20}}, /*receives_all=*/false);
  replica_.KeepOnly(/*newest=*/false);
  EXPECT_EQ(replica_.Snapshot()->arrays, before->arrays);
}

TEST_F(ReplicaTest, APartThatStaysIsNotCopied) {
  const float* const before = replica_.part().Array(0).data();
  replica_.BeginMove({{0, layout_.padded_count()}}, /*receives_all=*/false);
  replica_.KeepOnly(/*newest=*/true);
  EXPECT_EQ(replica_.part().Array(0).data(), before);
  EXPECT_TRUE(replica_.whole());
}

}  // namespace
}  // namespace muster
