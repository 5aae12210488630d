#include "state/move_state.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/state/move_fixture.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

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

// Of many segments each.
TEST_P(MoveStateTest, LongChunks) {
  std::vector<TensorSpec> tensors(3);
  for (int i = 0; i < 3; ++i) {
    tensors[i].name = absl::StrCat("tensor", i);
    tensors[i].shape = {i == 1 ? 77 : 150'000};
    tensors[i].block = i;
  }
  const Layout layout = Layout::Create(std::move(tensors), 1 << 20).value();
  const ShardMap all = ShardMap::Replicated(layout.padded_count(), 3).value();
  MoveOptions options;
  options.chunk_bytes = 100'000;
  options.window_bytes = 400'000;
  for (const Scenario& scenario : {Resize(Sharded(layout, 3, 1), all), Resize(all, all, {1}),
                                   Resize(Sharded(layout, 3), Sharded(layout, 2))}) {
    auto communicators = Communicators(MakeMesh(GetParam(), scenario.participants).ends);
    RunRanks(scenario.participants, [&](Rank p) {
      TestState state = scenario.StateOf(p);
      const MoveOutcome outcome = MoveState(*communicators[p], scenario.plan, state, options);
      ASSERT_TRUE(outcome.status.ok()) << outcome.status;
      for (const Range range : scenario.HeldAfter(p)) ASSERT_TRUE(state.HasAll(range));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, MoveStateTest,
                         testing::Values(MeshKind::kInProcess, MeshKind::kTcp, MeshKind::kHostile,
                                         MeshKind::kShm),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace muster
