#include "tests/sim/explorer/explorer.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"

namespace muster::sim {
namespace {

// One state on the path, and which of its moves comes next.
struct Level {
  World world;
  std::vector<Move> moves;
  size_t next = 0;
};

}  // namespace

Exploration Explore(const Scope& scope, int64_t most_states) {
  Exploration result;
  absl::flat_hash_set<std::pair<uint64_t, uint64_t>> seen;
  const auto enter = [&seen](const World& world) {
    const Digest digest = world.digest();
    return seen.insert({digest.low(), digest.high()}).second;
  };
  std::vector<Level> path;
  World first(scope);
  enter(first);
  std::vector<Move> moves = first.Moves();
  path.push_back({std::move(first), std::move(moves), 0});
  result.states = 1;
  result.complete = true;
  while (!path.empty()) {
    Level& top = path.back();
    if (top.next == top.moves.size()) {
      path.pop_back();
      continue;
    }
    const Move move = top.moves[top.next++];
    ++result.moves;
    World world = top.world;
    world.Make(move);
    if (move.torn < 0 && top.world.may_restart()) {
      for (int torn = 1; torn < world.records_of_move(); ++torn) {
        top.moves.push_back(move);
        top.moves.back().torn = torn;
      }
    }
    if (!world.checker.ok()) {
      result.failure = world.checker.failure();
      for (const Level& level : path) {
        result.trace.push_back(level.world.Describe(level.moves[level.next - 1]));
      }
      result.complete = false;
      return result;
    }
    if (world.beyond_scope() || !enter(world)) continue;
    ++result.states;
    if (world.job_over()) {
      ++result.ends;
      continue;
    }
    if (result.states >= most_states) {
      result.complete = false;
      return result;
    }
    moves = world.Moves();
    path.push_back({std::move(world), std::move(moves), 0});
    result.depth = std::max(result.depth, path.size());
  }
  return result;
}

}  // namespace muster::sim
