#include "bench/collectives/bench.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/collectives/table.h"

namespace muster::bench {
namespace {

// Of a round. With fewer, ranks that begin a round at different times would be a part of what is
// measured.
constexpr int kLeastIterations = 3;
constexpr int kMostIterations = 2000;

// One implementation's way with one trial, out of place or in place.
struct Contest {
  ChildGroup* group = nullptr;
  Row* row = nullptr;
  Trial trial;
  std::vector<double> times;
  int64_t wrong = 0;
};

// Of one size, all types by turns, so that they can be compared, too.
std::vector<Row> MeasureSize(const BenchSettings& settings, Kind kind, uint64_t bytes, int ranks,
                             const std::vector<std::unique_ptr<ChildGroup>>& groups) {
  struct Entry {
    ChildGroup* group;
    std::string variant;
    ElementType type;
  };
  std::vector<Entry> entries;
  for (const ElementType type : settings.types) {
    for (const auto& group : groups) {
      for (const std::string& variant : group->variants()) {
        entries.push_back({group.get(), variant, type});
      }
    }
  }
  std::vector<Row> rows;
  rows.reserve(entries.size());  // Contests point at them.
  std::vector<Contest> contests;
  for (const auto& [group, variant, type] : entries) {
    Trial trial;
    trial.kind = kind;
    trial.type = type;
    trial.redop = settings.redop;
    trial.root = settings.root;
    trial.count = CountOf(kind, type, ranks, bytes);
    std::snprintf(trial.variant, sizeof(trial.variant), "%s", variant.c_str());
    rows.push_back({group->implementation(), group->transport(), variant, ranks, trial, {}, {}});
    for (const bool in_place : {false, true}) {
      if (in_place && !(settings.in_place && WorksInPlace(kind))) continue;
      Contest contest = {group, &rows.back(), trial, {}, 0};
      contest.trial.in_place = in_place;
      contest.trial.iterations = kLeastIterations;
      // Warms up buffers and connections.
      if (!group->Measure(contest.trial, &contest.wrong).has_value()) continue;
      const double warm_us = *group->Measure(contest.trial, &contest.wrong);
      contest.trial.iterations = std::clamp(static_cast<int>(settings.round_ms * 1000 / warm_us),
                                            kLeastIterations, kMostIterations);
      contests.push_back(std::move(contest));
    }
  }
  for (int round = 0; round < settings.rounds; ++round) {
    for (Contest& contest : contests) {
      contest.times.push_back(*contest.group->Measure(contest.trial, &contest.wrong));
    }
  }
  for (Contest& contest : contests) {
    std::sort(contest.times.begin(), contest.times.end());
    const Measurement measured = {contest.times[contest.times.size() / 2], contest.wrong};
    (contest.trial.in_place ? contest.row->in_place : contest.row->out_of_place) = measured;
  }
  std::erase_if(rows, [](const Row& row) { return !row.out_of_place.has_value(); });
  return rows;
}

}  // namespace

int Measure(const BenchSettings& settings) {
  // Opened before anything is measured for it.
  std::ofstream file;
  if (!settings.json.empty()) {
    file.open(settings.json);
    if (!file) {
      std::fprintf(stderr, "bench: --json: cannot write %s\n", settings.json.c_str());
      return 2;
    }
  }
  nlohmann::json rows = nlohmann::json::array();
  int64_t wrong = 0;
  for (const int ranks : settings.ranks) {
    const auto groups = StartGroups(settings.groups, ranks);
    for (const Kind kind : settings.kinds) {
      std::printf("# %s, %d ranks, median of %d rounds\n%s", Name(kind), ranks, settings.rounds,
                  HeaderLines().c_str());
      for (uint64_t bytes = settings.min_bytes; bytes <= settings.max_bytes; bytes *= 4) {
        for (const Row& row : MeasureSize(settings, kind, bytes, ranks, groups)) {
          std::fputs(Line(row).c_str(), stdout);
          rows.push_back(ToJson(row));
          wrong += row.out_of_place->wrong;
          if (row.in_place.has_value()) wrong += row.in_place->wrong;
        }
        std::fflush(stdout);
        if (kind == Kind::kBarrier) break;
      }
    }
  }
  if (!settings.json.empty()) {
    file << rows.dump(1) << "\n";
    if (!file.flush()) {
      std::fprintf(stderr, "bench: cannot write %s\n", settings.json.c_str());
      return 1;
    }
  }
  if (wrong == 0) return 0;
  std::fprintf(stderr, "bench: %lld wrong values\n", static_cast<long long>(wrong));
  return 1;
}

}  // namespace muster::bench
