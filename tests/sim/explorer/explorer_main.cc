// muster-explore: tries every order of events in a small fleet and looks for a bad state.
//
//   muster-explore                       the production rules: exit code 0 if no state is bad
//   muster-explore --without-rule 2      a rule is switched off: exit code 0 if a bad state is
//   found
#include <chrono>
#include <cstdio>
#include <string>

#include "CLI/CLI.hpp"
#include "tests/sim/explorer/explorer.h"

namespace muster::sim {
namespace {

int Main(int argc, char** argv) {
  CLI::App app("Explores every interleaving of a small fleet's control plane.");
  Scope scope;
  int without_rule = 0;
  int64_t most_states = 50'000'000;
  bool quiet = false;
  app.add_option("--members", scope.members, "Workers in the first view")
      ->capture_default_str()
      ->check(CLI::Range(1, 8));
  app.add_option("--joiners", scope.joiners, "Workers that join later")
      ->capture_default_str()
      ->check(CLI::Range(0, 8));
  app.add_option("--steps", scope.steps, "Steps of the job")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{16}));
  app.add_option("--epochs", scope.epochs, "Last epoch looked at")
      ->capture_default_str()
      ->check(CLI::Range(uint64_t{1}, uint64_t{16}));
  app.add_option("--crashes", scope.crashes, "Workers that crash")
      ->capture_default_str()
      ->check(CLI::Range(0, 8));
  app.add_option("--restarts", scope.coordinator_restarts, "Restarts of the coordinator")
      ->capture_default_str()
      ->check(CLI::Range(0, 8));
  app.add_option("--rejoins", scope.rejoins, "New incarnations")
      ->capture_default_str()
      ->check(CLI::Range(0, 8));
  app.add_option("--orphans", scope.orphans, "Timers that fire in workers without a coordinator")
      ->capture_default_str()
      ->check(CLI::Range(0, 16));
  app.add_option("--stage", scope.stage, "Shard the state (1 to 3)")
      ->capture_default_str()
      ->check(CLI::Range(0, kMaxStage));
  app.add_option("--replicas", scope.replicas, "Holders of each shard besides its owner")
      ->capture_default_str()
      ->check(CLI::Range(0, kMaxReplicas));
  app.add_option("--group-size", scope.group_size, "Hybrid sharding in groups of so many")
      ->capture_default_str()
      ->check(CLI::Range(0, 8));
  app.add_option("--servers", scope.servers, "Parameter servers in the first view")
      ->capture_default_str()
      ->check(CLI::Range(0, 8));
  app.add_option("--switches", scope.switches, "Changes between sharded and not")
      ->capture_default_str()
      ->check(CLI::Range(0, 8));
  app.add_flag("--auto", scope.automatic, "The coordinator chooses the strategy");
  app.add_flag("--tight", scope.tight, "Workers have memory for a part of the state alone");
  app.add_option("--without-rule", without_rule, "Switch one of the rules 1 to 5 and 8 off")
      ->check(CLI::IsMember({1, 2, 3, 4, 5, 8}));
  app.add_option("--most-states", most_states, "Give up after so many")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_flag("--quiet", quiet, "Do not print the way to a bad state");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "muster-explore: %s (see --help)\n", error.what());
    return 2;
  }
  scope.rules.quiesce_before_answer = without_rule != 1;
  scope.rules.eviction_is_final = without_rule != 2;
  scope.rules.state_is_tagged = without_rule != 3;
  scope.rules.stable_before_visible = without_rule != 4;
  scope.rules.rest_before_seal = without_rule != 5;
  scope.rules.seal_before_freeing = without_rule != 8;

  const auto start = std::chrono::steady_clock::now();
  const Exploration result = Explore(scope, most_states);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%lld states, %lld moves, longest path %zu, job over in %lld, %.1f s, %s\n",
              static_cast<long long>(result.states), static_cast<long long>(result.moves),
              result.depth, static_cast<long long>(result.ends), seconds,
              result.complete ? "complete" : "not complete");
  if (!result.failure.empty()) {
    std::printf("bad state: %s\n", result.failure.c_str());
    if (!quiet) {
      for (const std::string& move : result.trace) std::printf("  %s\n", move.c_str());
    }
  }
  if (without_rule != 0) return result.failure.empty() ? 1 : 0;
  return result.failure.empty() && result.complete ? 0 : 1;
}

}  // namespace
}  // namespace muster::sim

int main(int argc, char** argv) { return muster::sim::Main(argc, argv); }
