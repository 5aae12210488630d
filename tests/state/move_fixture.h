// States that are moved, and scenarios of moves, for the mover's tests.
#ifndef MUSTER_TESTS_STATE_MOVE_FIXTURE_H_
#define MUSTER_TESTS_STATE_MOVE_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <vector>

#include "state/move_state.h"
#include "tests/collectives/transport/mesh_fixture.h"
#include "tests/state/random_layout.h"
#include "tests/state/strategy_maps.h"

namespace muster {

inline constexpr StateTag kTag = {.branch = 1, .step = 41, .epoch = 5};

inline Layout TestLayout() {
  std::vector<TensorSpec> tensors(3);
  for (int i = 0; i < 3; ++i) {
    tensors[i].name = absl::StrCat("tensor", i);
    tensors[i].shape = {i == 1 ? 1 : 2500 + 500 * i};
    tensors[i].block = i;
  }
  return Layout::Create(std::move(tensors), 1000).value();
}

// Two arrays over the flat space, of which a participant has some elements. Each value says which
// element of which array it is.
class TestState : public MovableState {
 public:
  TestState(int64_t element_count, const std::vector<Range>& held)
      : arrays_(2, std::vector<float>(static_cast<size_t>(element_count), kNothing)) {
    for (const Range range : held) {
      for (int64_t i = range.offset; i < range.end(); ++i) Put(i);
    }
  }

  int64_t element_bytes() const override { return 2 * sizeof(float); }
  absl::Status Read(Range range, absl::Span<std::byte> bytes) override {
    if (on_read) {
      if (absl::Status status = on_read(reads_++); !status.ok()) return status;
    }
    EXPECT_EQ(bytes.size(), static_cast<size_t>(range.count * element_bytes()));
    EXPECT_TRUE(HasAll(range)) << "reads from " << range.offset << " on, which is not here";
    const size_t half = bytes.size() / 2;
    for (size_t array = 0; array < 2; ++array) {
      std::memcpy(bytes.data() + array * half, arrays_[array].data() + range.offset, half);
    }
    return absl::OkStatus();
  }
  absl::Status Write(Range range, absl::Span<const std::byte> bytes) override {
    if (on_write) {
      if (absl::Status status = on_write(); !status.ok()) return status;
    }
    const size_t half = bytes.size() / 2;
    for (int64_t i = range.offset; i < range.end(); ++i) {
      EXPECT_EQ(arrays_[0][i], kNothing) << "element " << i << " was there";
    }
    for (size_t array = 0; array < 2; ++array) {
      std::memcpy(arrays_[array].data() + range.offset, bytes.data() + array * half, half);
    }
    EXPECT_TRUE(HasAll(range)) << "wrong values from " << range.offset << " on";
    return absl::OkStatus();
  }

  bool Has(int64_t i) const {
    return arrays_[0][i] == static_cast<float>(i) && arrays_[1][i] == static_cast<float>(-i - 1);
  }
  bool HasAll(Range range) const {
    for (int64_t i = range.offset; i < range.end(); ++i) {
      if (!Has(i)) return false;
    }
    return true;
  }
  int64_t CountHeld() const {
    int64_t count = 0;
    for (size_t i = 0; i < arrays_[0].size(); ++i) count += arrays_[0][i] == kNothing ? 0 : 1;
    return count;
  }

  std::function<absl::Status(int)> on_read;  // told how many reads there were before
  std::function<absl::Status()> on_write;

 private:
  static constexpr float kNothing = 0.5f;
  void Put(int64_t i) {
    arrays_[0][i] = static_cast<float>(i);
    arrays_[1][i] = static_cast<float>(-i - 1);
  }
  std::vector<std::vector<float>> arrays_;
  int reads_ = 0;
};

struct Scenario {
  ShardMap before;
  ShardMap after;
  std::vector<std::optional<Rank>> old_participants;  // by rank of `before`
  std::vector<Rank> new_participants;                 // by rank of `after`
  int participants = 0;
  ReshardPlan plan;

  std::vector<Range> HeldBefore(Rank participant) const {
    for (size_t rank = 0; rank < old_participants.size(); ++rank) {
      if (old_participants[rank] == participant) {
        return before.RangesHeldBy(static_cast<Rank>(rank));
      }
    }
    return {};
  }
  std::vector<Range> HeldAfter(Rank participant) const {
    for (size_t rank = 0; rank < new_participants.size(); ++rank) {
      if (new_participants[rank] == participant) {
        return after.RangesHeldBy(static_cast<Rank>(rank));
      }
    }
    return {};
  }
  TestState StateOf(Rank participant) const {
    return TestState(before.element_count(), HeldBefore(participant));
  }
};

inline Scenario MakeScenario(ShardMap before, ShardMap after,
                             std::vector<std::optional<Rank>> old_participants,
                             std::vector<Rank> new_participants, int participants) {
  Scenario scenario = {std::move(before),           std::move(after), std::move(old_participants),
                       std::move(new_participants), participants,     {}};
  const auto plan = PlanReshard(kTag, HoldingsOf(scenario.before, scenario.old_participants, kTag),
                                scenario.after, scenario.new_participants, participants);
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (plan.ok()) scenario.plan = *plan;
  return scenario;
}

// Old ranks are the first participants, but for the dead; new ranks are the last.
inline Scenario Resize(const ShardMap& before, const ShardMap& after,
                       const std::set<Rank>& dead = {}) {
  const int alive = before.world_size() - static_cast<int>(dead.size());
  const int participants = std::max(alive, after.world_size());
  std::vector<std::optional<Rank>> old_participants(before.world_size());
  Rank next = 0;
  for (Rank rank = 0; rank < before.world_size(); ++rank) {
    if (dead.count(rank) == 0) old_participants[rank] = next++;
  }
  std::vector<Rank> new_participants(after.world_size());
  std::iota(new_participants.begin(), new_participants.end(), participants - after.world_size());
  return MakeScenario(before, after, std::move(old_participants), std::move(new_participants),
                      participants);
}

using Ends = std::vector<std::unique_ptr<Transport>>;

inline std::vector<std::unique_ptr<Communicator>> Communicators(Ends ends) {
  std::vector<std::unique_ptr<Communicator>> communicators;
  CommunicatorOptions options;
  options.segment_bytes = 1024;
  options.spin = absl::ZeroDuration();
  for (auto& end : ends) communicators.push_back(*Communicator::Create(std::move(end), options));
  return communicators;
}

inline MoveOptions SmallChunks() {
  MoveOptions options;
  options.chunk_bytes = 1000;
  options.window_bytes = 4200;
  return options;
}

}  // namespace muster

#endif  // MUSTER_TESTS_STATE_MOVE_FIXTURE_H_
