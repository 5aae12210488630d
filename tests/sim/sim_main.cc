// muster-sim: runs the control plane under seeded faults and checks its invariants.
//
//   muster-sim --seeds 1..2000          all of them; exit code 1 if one fails
//   muster-sim --seed 17 --verbose      one, with every event
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "tests/sim/simulation.h"

namespace muster::sim {
namespace {

constexpr size_t kTraceLines = 150;

// Runs a failed seed again, to show how it came to it.
void ShowFailure(const Outcome& outcome, const char* program) {
  const std::string seed = absl::StrCat(outcome.seed);
  std::printf("seed %s: %s\n", seed.c_str(), outcome.failure.c_str());
  std::vector<std::string> lines;
  Simulation(outcome.seed, ProtocolRules(), [&](const std::string& line) {
    lines.push_back(line);
  }).Run();
  const size_t first = lines.size() > kTraceLines ? lines.size() - kTraceLines : 0;
  std::printf("the last %zu of %zu events:\n", lines.size() - first, lines.size());
  for (size_t i = first; i < lines.size(); ++i) std::printf("%s\n", lines[i].c_str());
  std::printf("replay: %s --seed %s --verbose\n", program, seed.c_str());
}

int Main(int argc, char** argv) {
  CLI::App app("Simulates Muster's control plane under seeded faults and checks its invariants.");
  std::string seeds = "1..2000";
  std::string one_seed;
  std::string json;
  bool verbose = false;
  app.add_option("--seeds", seeds, "Range of seeds to run, both ends included")
      ->capture_default_str();
  // As text: a number's parser would take -1 for 2^64-1.
  app.add_option("--seed", one_seed, "Run this one seed");
  app.add_flag("--verbose", verbose, "Print every event");
  app.add_option("--json", json, "Write totals to this file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "muster-sim: %s (see --help)\n", error.what());
    return 2;
  }
  uint64_t first = 0;
  uint64_t last = 0;
  const std::vector<std::string> ends = absl::StrSplit(seeds, absl::MaxSplits("..", 1));
  if (!one_seed.empty()) {
    if (!absl::SimpleAtoi(one_seed, &first)) {
      std::fprintf(stderr, "muster-sim: --seed %s: expected a number from 0 to 2^64-1\n",
                   one_seed.c_str());
      return 2;
    }
    last = first;
  } else if (ends.size() != 2 || !absl::SimpleAtoi(ends[0], &first) ||
             !absl::SimpleAtoi(ends[1], &last) || first > last) {
    std::fprintf(stderr, "muster-sim: --seeds %s: expected A..B with A <= B, for example 1..2000\n",
                 seeds.c_str());
    return 2;
  }

  const auto start = std::chrono::steady_clock::now();
  int64_t events = 0, view_changes = 0, faults = 0, restarts = 0, failed = 0;
  int64_t kept = 0, kept_sealed = 0, moves = 0, grouped = 0, scattered = 0, choices = 0;
  int most_after = 0;
  absl::Duration virtual_time;
  for (uint64_t s = first;; ++s) {
    std::function<void(const std::string&)> trace;
    if (verbose) trace = [](const std::string& line) { std::printf("%s\n", line.c_str()); };
    const Outcome outcome = Simulation(s, ProtocolRules(), trace).Run();
    events += outcome.events;
    view_changes += outcome.view_changes;
    faults += outcome.faults;
    moves += outcome.moves;
    grouped += outcome.grouped;
    choices += outcome.choices;
    scattered += outcome.scattered;
    restarts += outcome.restarts_from_checkpoint;
    kept += outcome.kept;
    kept_sealed += outcome.kept_sealed;
    most_after = std::max(most_after, outcome.view_changes_after_faults);
    virtual_time += outcome.virtual_time;
    if (!outcome.failure.empty()) {
      ++failed;
      if (!verbose && failed <= 3) {
        ShowFailure(outcome, argv[0]);
      } else {
        std::printf("seed %s: %s\n", absl::StrCat(s).c_str(), outcome.failure.c_str());
      }
    }
    if (s == last) break;  // before it overflows
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto ran = static_cast<int64_t>(last - first + 1);
  std::printf(
      "%s\n",
      absl::StrFormat(
          "%d seeds, %d failed; %d events, %d faults, %d view changes (at most %d after "
          "the last fault; %d that move shards, %d to several groups, %d that find too few, %d by "
          "policy), %d "
          "restarts from a "
          "checkpoint, %d states kept without a "
          "coordinator (%d sealed), %.0f s of virtual time in %.1f s",
          ran, failed, events, faults, view_changes, most_after, moves, grouped, scattered, choices,
          restarts, kept, kept_sealed, absl::ToDoubleSeconds(virtual_time), seconds)
          .c_str());
  if (!json.empty()) {
    std::ofstream file(json);
    file << absl::StrFormat(
        "[{\"seeds\": %d, \"failed\": %d, \"events\": %d, \"faults\": %d, \"view_changes\": %d, "
        "\"most_view_changes_after_faults\": %d, \"restarts\": %d, \"kept\": %d, \"kept_sealed\": "
        "%d, \"moves\": %d, \"grouped\": %d, \"scattered\": %d, \"choices\": %d, "
        "\"virtual_seconds\": %.3f, \"seconds\": %.3f}]\n",
        ran, failed, events, faults, view_changes, most_after, restarts, kept, kept_sealed, moves,
        grouped, scattered, choices, absl::ToDoubleSeconds(virtual_time), seconds);
    if (!file) {
      std::fprintf(stderr, "--json %s: cannot write the file\n", json.c_str());
      return 1;
    }
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace muster::sim

int main(int argc, char** argv) { return muster::sim::Main(argc, argv); }
