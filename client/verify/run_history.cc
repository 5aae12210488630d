#include "client/verify/run_history.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace muster {
namespace {

// About 300 bytes a step.
constexpr int64_t kMostMetricsBytes = int64_t{1} << 30;

// Of each view, its parameter servers.
std::map<uint64_t, int> ServersByEpoch(const v1::Job& job) {
  std::map<uint64_t, int> servers;
  for (const v1::ViewChange& change : job.view_changes()) {
    servers[change.epoch()] = change.servers();
  }
  return servers;
}

// The epoch in which a step was taken; 0: not known.
uint64_t EpochOf(const std::vector<StepRecord>& steps, int64_t step) {
  const auto found = std::lower_bound(
      steps.begin(), steps.end(), step,
      [](const StepRecord& record, int64_t wanted) { return record.step < wanted; });
  return found != steps.end() && found->step == step ? found->epoch : 0;
}

const v1::ViewChange* DeathOf(const v1::Job& job, absl::string_view worker) {
  for (const v1::ViewChange& change : job.view_changes()) {
    if (change.cause() != v1::VIEW_CHANGE_CAUSE_DEATH) continue;
    for (const std::string& name : change.workers()) {
      if (name == worker) return &change;
    }
  }
  return nullptr;
}

}  // namespace

std::vector<StepRecord> ParseSteps(absl::string_view metrics) {
  std::map<int64_t, StepRecord> by_step;
  for (const absl::string_view line : absl::StrSplit(metrics, '\n')) {
    const auto record = nlohmann::json::parse(line.begin(), line.end(), nullptr,
                                              /*allow_exceptions=*/false);
    if (!record.is_object() || !record.contains("kind") || record["kind"] != "step") continue;
    const auto number = [&](const char* key) {
      const auto found = record.find(key);
      return found != record.end() && found->is_number_unsigned() ? found->get<int64_t>() : 0;
    };
    const StepRecord step{number("step"), static_cast<uint64_t>(number("epoch")),
                          static_cast<int>(number("world_size"))};
    if (step.step > 0) by_step[step.step] = step;
  }
  std::vector<StepRecord> steps;
  for (const auto& [number, step] : by_step) steps.push_back(step);
  return steps;
}

absl::StatusOr<std::vector<StepRecord>> ReadSteps(FileSystem& files, const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(files, path, kMostMetricsBytes));
  return ParseSteps(text);
}

std::string HistoryProblem(const VerifyRun& run, const VerifyPlanOptions& options,
                           const v1::Job& job, const std::vector<StepRecord>& steps) {
  const std::map<uint64_t, int> servers = ServersByEpoch(job);
  int served = 0;
  for (const StepRecord& step : steps) {
    const auto in_view = servers.find(step.epoch);
    const int serving = in_view == servers.end() ? 0 : in_view->second;
    if (step.members - serving != options.workers) {
      return absl::StrFormat("step %d was taken by %d workers, not by %d", step.step,
                             step.members - serving, options.workers);
    }
    served += serving == run.strategy.servers;
  }
  if (run.switches.empty() && served == 0) {
    return absl::StrFormat("none of %d recorded steps was taken with %d parameter servers",
                           steps.size(), run.strategy.servers);
  }
  for (const StrategySwitch& change : run.switches) {
    const uint64_t before = EpochOf(steps, change.after);
    const uint64_t after = EpochOf(steps, change.after + 1);
    if (before != 0 && before == after) {
      return absl::StrFormat("the strategy did not change after step %d", change.after);
    }
  }
  const std::string worker = KilledWorker(run);
  if (!worker.empty() && DeathOf(job, worker) == nullptr) {
    return absl::StrCat("the job was over before ", worker, " was killed; give more --steps");
  }
  return "";
}

std::optional<int64_t> StepOfDeath(const v1::Job& job, const std::vector<StepRecord>& steps,
                                   absl::string_view worker) {
  const v1::ViewChange* const death = DeathOf(job, worker);
  if (death == nullptr) return std::nullopt;
  for (const StepRecord& step : steps) {
    if (step.epoch >= death->epoch()) return step.step - 1;
  }
  return std::nullopt;
}

}  // namespace muster
