#include "state/move_state.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collectives/transport/mesh_fixture.h"
#include "tests/state/corrupting_transport.h"
#include "tests/state/random_layout.h"
#include "tests/state/strategy_maps.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr StateTag kTag = {.branch = 1, .step = 41, .epoch = 5};

Layout TestLayout() {
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

Scenario MakeScenario(ShardMap before, ShardMap after,
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
Scenario Resize(const ShardMap& before, const ShardMap& after, const std::set<Rank>& dead = {}) {
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

std::vector<std::unique_ptr<Communicator>> Communicators(Ends ends) {
  std::vector<std::unique_ptr<Communicator>> communicators;
  CommunicatorOptions options;
  options.segment_bytes = 1024;
  options.spin = absl::ZeroDuration();
  for (auto& end : ends) communicators.push_back(*Communicator::Create(std::move(end), options));
  return communicators;
}

MoveOptions SmallChunks() {
  MoveOptions options;
  options.chunk_bytes = 1000;
  options.window_bytes = 4200;
  return options;
}

// Moves, and expects that everyone then has what the new map says, and what it had. Every other
// participant brings its own staging memory.
void ExpectMoves(const Scenario& scenario, TestMesh mesh) {
  auto communicators = Communicators(std::move(mesh.ends));
  RunRanks(scenario.participants, [&](Rank p) {
    TestState state = scenario.StateOf(p);
    const int64_t before = state.CountHeld();
    MoveOptions options = SmallChunks();
    std::vector<std::byte> staging(p % 2 == 0 ? 0 : options.window_bytes);
    options.staging = absl::MakeSpan(staging);
    const MoveOutcome outcome = MoveState(*communicators[p], scenario.plan, state, options);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    for (const Range range : scenario.HeldAfter(p)) ASSERT_TRUE(state.HasAll(range));
    for (const Range range : scenario.HeldBefore(p)) ASSERT_TRUE(state.HasAll(range));
    // Nothing beyond its own, and no staging memory beyond the window.
    EXPECT_EQ(state.CountHeld(), before + scenario.plan.ReceivedBy(p));
    EXPECT_LE(outcome.staging_bytes, SmallChunks().window_bytes);
    EXPECT_EQ(outcome.bytes_received, scenario.plan.ReceivedBy(p) * state.element_bytes());
    EXPECT_EQ(outcome.bytes_sent, scenario.plan.SentBy(p) * state.element_bytes());
    int64_t arrived = 0;
    for (const Range range : outcome.arrived) arrived += range.count;
    EXPECT_EQ(arrived, scenario.plan.ReceivedBy(p));
  });
}

// First, since gtest runs suites of this name first: the peer is forked before there are threads.
TEST(MoveStateDeathTest, AProcessKilledInTheMiddleIsNamedAndWhatArrivedIsRight) {
  int to_parent[2], to_child[2];
  ASSERT_EQ(pipe(to_parent), 0);
  ASSERT_EQ(pipe(to_child), 0);
  const auto put = [](int fd, const std::string& text) {
    char fixed[64] = {};
    text.copy(fixed, sizeof(fixed) - 1);
    return write(fd, fixed, sizeof(fixed)) == sizeof(fixed);
  };
  const auto take = [](int fd) {
    char fixed[64] = {};
    return read(fd, fixed, sizeof(fixed)) == sizeof(fixed) ? std::string(fixed) : std::string();
  };
  const Layout layout = TestLayout();
  // Participant 1 has all, and gives half of it to participant 0.
  const Scenario scenario = MakeScenario(ShardMap::Replicated(layout.padded_count(), 1).value(),
                                         Sharded(layout, 2), {1}, {0, 1}, 2);
  const auto join = [](TcpListener& listener, Rank rank, const std::string& a,
                       const std::string& b) {
    MeshSpec spec;
    spec.token = "kill";
    spec.epoch = 1;
    spec.rank = rank;
    spec.members = {{Incarnation{1}, a}, {Incarnation{2}, b}};
    return TcpTransport::Connect(listener, spec, absl::Now() + absl::Seconds(30));
  };
  const auto communicate = [](std::unique_ptr<Transport> end) {
    Ends ends;
    ends.push_back(std::move(end));
    return std::move(Communicators(std::move(ends))[0]);
  };
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto listener = TcpListener::Create();
    if (!listener.ok() || !put(to_parent[1], (*listener)->address())) _exit(1);
    auto end = join(**listener, 1, take(to_child[0]), (*listener)->address());
    if (!end.ok()) _exit(2);
    const auto communicator = communicate(*std::move(end));
    TestState state = scenario.StateOf(1);
    state.on_read = [](int before) {
      if (before == 8) raise(SIGKILL);
      return absl::OkStatus();
    };
    MoveState(*communicator, scenario.plan, state, SmallChunks());
    _exit(3);
  }
  auto listener = TcpListener::Create();
  ASSERT_TRUE(listener.ok()) << listener.status();
  const std::string peer = take(to_parent[0]);
  ASSERT_TRUE(put(to_child[1], (*listener)->address()));
  auto end = join(**listener, 0, (*listener)->address(), peer);
  ASSERT_TRUE(end.ok()) << end.status();
  const auto communicator = communicate(*std::move(end));
  TestState state = scenario.StateOf(0);
  const MoveOutcome outcome = MoveState(*communicator, scenario.plan, state, SmallChunks());
  EXPECT_TRUE(absl::IsUnavailable(outcome.status)) << outcome.status;
  EXPECT_EQ(outcome.culprit, std::optional<Rank>(1));
  int64_t arrived = 0;
  for (const Range range : outcome.arrived) {
    EXPECT_TRUE(state.HasAll(range));
    arrived += range.count;
  }
  EXPECT_LT(arrived, scenario.plan.ReceivedBy(0));
  EXPECT_EQ(arrived, state.CountHeld());
  int exit_status = 0;
  EXPECT_EQ(waitpid(child, &exit_status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(exit_status));
}

class MoveStateTest : public testing::TestWithParam<MeshKind> {};

TEST_P(MoveStateTest, FromAnyNumberOfWorkersToAnyOther) {
  for (int before = 1; before <= 5; ++before) {
    for (int after = 1; after <= 5; ++after) {
      if ((before + after) % 2 == 1 && GetParam() != MeshKind::kInProcess) continue;
      SCOPED_TRACE(absl::StrCat(before, " to ", after));
      const Layout layout = RandomLayout(static_cast<uint32_t>(before * 10 + after));
      const Scenario scenario =
          Resize(Sharded(layout, before, /*replicas=*/1), Sharded(layout, after, 1));
      ExpectMoves(scenario, MakeMesh(GetParam(), scenario.participants));
    }
  }
}

TEST_P(MoveStateTest, AcrossStrategies) {
  const Layout layout = RandomLayout(77);
  const ShardMap all = ShardMap::Replicated(layout.padded_count(), 3).value();
  const Scenario scenarios[] = {
      // Workers to servers, and back to fewer.
      Resize(Sharded(layout, 3), Served(layout, 3, 2, /*mixed=*/false)),
      Resize(Served(layout, 3, 2, /*mixed=*/false), Sharded(layout, 2)),
      Resize(Served(layout, 3, 1, /*mixed=*/true), all),
      Resize(all, Served(layout, 3, 1, /*mixed=*/true)),
      // Heal after deaths, with a newcomer.
      Resize(Sharded(layout, 4, 1), Sharded(layout, 4, 1), {2}),
      Resize(all, ShardMap::Replicated(layout.padded_count(), 4).value(), {0, 1}),
  };
  for (size_t i = 0; i < std::size(scenarios); ++i) {
    SCOPED_TRACE(absl::StrCat("scenario ", i));
    ExpectMoves(scenarios[i], MakeMesh(GetParam(), scenarios[i].participants));
  }
}

TEST_P(MoveStateTest, AnAbortEndsItOnAll) {
  const Layout layout = TestLayout();
  const Scenario scenario = Resize(Sharded(layout, 3), Sharded(layout, 2));
  auto communicators = Communicators(MakeMesh(GetParam(), 3).ends);
  RunRanks(3, [&](Rank p) {
    TestState state = scenario.StateOf(p);
    std::thread other;
    if (p == 0) {
      state.on_read = [&](int before) {
        if (before == 3) {
          other =
              std::thread([&] { communicators[0]->Abort(absl::AbortedError("view 9 begins")); });
          other.join();
        }
        return absl::OkStatus();
      };
    }
    const MoveOutcome outcome = MoveState(*communicators[p], scenario.plan, state, SmallChunks());
    EXPECT_THAT(std::string(outcome.status.message()), HasSubstr("view 9 begins"))
        << outcome.status;
    for (const Range range : outcome.arrived) EXPECT_TRUE(state.HasAll(range));
  });
}

INSTANTIATE_TEST_SUITE_P(Meshes, MoveStateTest,
                         testing::Values(MeshKind::kInProcess, MeshKind::kTcp, MeshKind::kHostile,
                                         MeshKind::kShm),
                         [](const auto& info) { return NameOf(info.param); });

TEST(MoveStateFailureTest, AKilledParticipantIsNamedByAllForEverySeed) {
  const Layout layout = TestLayout();
  const Scenario scenario = Resize(Sharded(layout, 4), Sharded(layout, 3));
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    TransportLimits limits;
    limits.eager_bytes = 512;
    limits.unexpected_bytes = 4096;
    HostileMesh mesh = MakeHostileMesh(4, seed, limits);
    auto communicators = Communicators(std::move(mesh.ends));
    // The last participant gives nothing.
    const auto victim = static_cast<Rank>(seed % 3);
    RunRanks(4, [&](Rank p) {
      TestState state = scenario.StateOf(p);
      if (p == victim) {
        state.on_read = [&](int before) {
          if (before == static_cast<int>(seed % 5)) KillRank(*mesh.hub, victim);
          return absl::OkStatus();
        };
      }
      const int64_t before = state.CountHeld();
      const MoveOutcome outcome = MoveState(*communicators[p], scenario.plan, state, SmallChunks());
      int64_t arrived = 0;
      for (const Range range : outcome.arrived) {
        EXPECT_TRUE(state.HasAll(range));
        arrived += range.count;
      }
      EXPECT_EQ(state.CountHeld(), before + arrived);
      // Who had all that was its own before the death may have ended well.
      if (outcome.status.ok()) {
        EXPECT_NE(p, victim);
        EXPECT_EQ(arrived, scenario.plan.ReceivedBy(p));
        return;
      }
      EXPECT_TRUE(absl::IsUnavailable(outcome.status)) << outcome.status;
      EXPECT_EQ(outcome.culprit, std::optional<Rank>(victim));
    });
    if (HasFailure()) return;
  }
}

TEST(MoveStateFailureTest, ADamagedChunkIsNeverWritten) {
  const Layout layout = TestLayout();
  const Scenario scenario = MakeScenario(ShardMap::Replicated(layout.padded_count(), 1).value(),
                                         Sharded(layout, 2), {1}, {0, 1}, 2);
  // In the payload, in the fingerprint and in the checksum.
  for (const size_t from_end : {700, 12, 11, 4, 3, 0}) {
    for (const int number : {0, 3}) {
      SCOPED_TRACE(absl::StrCat("byte ", from_end, " of message ", number));
      Ends ends = MakeInProcessMesh(2, {});
      ends[1] =
          std::make_unique<CorruptingTransport>(std::move(ends[1]), 1000, number, from_end, 5);
      auto communicators = Communicators(std::move(ends));
      RunRanks(2, [&](Rank p) {
        TestState state = scenario.StateOf(p);
        MoveOptions options = SmallChunks();
        options.chunk_bytes = 1008;  // One segment, with the trailer.
        const MoveOutcome outcome = MoveState(*communicators[p], scenario.plan, state, options);
        EXPECT_TRUE(absl::IsDataLoss(outcome.status)) << outcome.status;
        EXPECT_THAT(std::string(outcome.status.message()),
                    AllOf(HasSubstr("126 elements from "), HasSubstr("from participant 1"),
                          HasSubstr("checksum")));
        if (p == 0) {
          EXPECT_EQ(outcome.bytes_received, number * 1008);
          EXPECT_EQ(state.CountHeld(), number * 126);
          for (const Range range : outcome.arrived) EXPECT_TRUE(state.HasAll(range));
        }
      });
    }
  }
}

TEST(MoveStateFailureTest, ParticipantsOfDifferentPlansRefuseEachOther) {
  const ShardMap before = ShardMap::Replicated(1000, 1).value();
  const ShardMap after = ShardMap::Replicated(1000, 2).value();
  const Scenario scenario = MakeScenario(before, after, {0}, {0, 1}, 2);
  StateTag other_tag = kTag;
  other_tag.step = 40;
  const ReshardPlan other_plan =
      PlanReshard(other_tag, HoldingsOf(before, {0}, other_tag), after, {0, 1}, 2).value();
  ASSERT_EQ(other_plan.transfers, scenario.plan.transfers);
  auto communicators = Communicators(MakeInProcessMesh(2, {}));
  RunRanks(2, [&](Rank p) {
    TestState state = scenario.StateOf(p);
    const MoveOutcome outcome =
        MoveState(*communicators[p], p == 0 ? other_plan : scenario.plan, state);
    // The giver may be done before the taker looks.
    if (p == 0) return;
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kFailedPrecondition) << outcome.status;
    EXPECT_THAT(std::string(outcome.status.message()), HasSubstr("participant 0 moves by plan"));
    EXPECT_EQ(state.CountHeld(), 0);
  });
}

TEST(MoveStateFailureTest, AStateThatCannotBeReadOrWrittenEndsItOnAll) {
  const Layout layout = TestLayout();
  const Scenario scenario = Resize(Sharded(layout, 3), Sharded(layout, 2));
  for (const bool reading : {true, false}) {
    auto communicators = Communicators(MakeInProcessMesh(3, {}));
    RunRanks(3, [&](Rank p) {
      TestState state = scenario.StateOf(p);
      const absl::Status broken = absl::InternalError("the disk is on fire");
      if (p == 1 && reading) state.on_read = [&](int) { return broken; };
      if (p == 1 && !reading) state.on_write = [&] { return broken; };
      const MoveOutcome outcome = MoveState(*communicators[p], scenario.plan, state, SmallChunks());
      EXPECT_THAT(std::string(outcome.status.message()), HasSubstr("the disk is on fire"));
    });
  }
}

TEST(MoveStateFailureTest, TheDeadlineNamesWhoIsLate) {
  const Layout layout = TestLayout();
  const Scenario scenario = Resize(Sharded(layout, 2), Sharded(layout, 1));
  auto communicators = Communicators(MakeInProcessMesh(2, {}));
  // Participant 0, which gives, never comes.
  TestState state = scenario.StateOf(1);
  MoveOptions options = SmallChunks();
  options.timeout = absl::Milliseconds(50);
  const MoveOutcome outcome = MoveState(*communicators[1], scenario.plan, state, options);
  EXPECT_TRUE(absl::IsDeadlineExceeded(outcome.status)) << outcome.status;
  EXPECT_THAT(std::string(outcome.status.message()),
              AllOf(HasSubstr("rank 0"), HasSubstr("step 41")));
  EXPECT_EQ(outcome.culprit, std::optional<Rank>(0));
}

TEST(MoveStateFailureTest, RefusesOptionsThatLeaveNoWindow) {
  const Scenario scenario = MakeScenario(ShardMap::Replicated(64, 1).value(),
                                         ShardMap::Replicated(64, 1).value(), {0}, {0}, 1);
  const auto text = [&scenario](int64_t chunk_bytes, int64_t window_bytes, size_t staged = 0) {
    auto communicators = Communicators(MakeInProcessMesh(1, {}));
    TestState state = scenario.StateOf(0);
    MoveOptions options;
    options.chunk_bytes = chunk_bytes;
    options.window_bytes = window_bytes;
    std::vector<std::byte> staging(staged);
    options.staging = absl::MakeSpan(staging);
    const MoveOutcome outcome = MoveState(*communicators[0], scenario.plan, state, options);
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(outcome.status.message());
  };
  EXPECT_THAT(text(0, 100), HasSubstr("chunks of 0 bytes"));
  EXPECT_THAT(text(100, 199), HasSubstr("in a window of 199"));
  EXPECT_THAT(text(100, 200, 255), HasSubstr("staging memory of 255 bytes; expected at least 256"));
  EXPECT_THAT(text(int64_t{1} << 30, int64_t{1} << 40), HasSubstr("at most"));
}

}  // namespace
}  // namespace muster
