// bench-simulate: how well does data-parallel training scale to numbers of GPUs nobody has at hand?
//
// Runs the schedules and plans of the all-reduce (collectives/schedule, collectives/engine) for the
// gradient buckets of one training step on a modelled network (network.h), while the ranks compute.
// Prints, per path and number of GPUs, the step's time and the scaling efficiency: the time of
// computing alone over the time of the step. Everything follows from the flags; nothing is
// measured.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/daemon.h"
#include "bench/simulate/training_step.h"
#include "collectives/schedule/schedule_request.h"

namespace muster {
namespace {

struct Path {
  std::string name;
  Algorithm algorithm = Algorithm::kRing;
  std::string what;
};

// A parameter server is the star; one whose ranges lie with all workers is the direct exchange.
const std::vector<Path>& Paths() {
  static const auto& paths = *new std::vector<Path>{
      {"star", Algorithm::kStar, "one parameter server"},
      {"sharded", Algorithm::kDirect, "a parameter server in each worker (direct all-reduce)"},
      {"ring", Algorithm::kRing, "ring all-reduce"},
      {"halving_doubling", Algorithm::kHalvingDoubling, "halving-doubling all-reduce"},
      {"double_tree", Algorithm::kDoubleTree, "double binary tree all-reduce"},
      {"hierarchical", Algorithm::kHierarchical, "inside each host first, then between them"}};
  return paths;
}

struct Options {
  std::string preset = "p4d";
  std::vector<int> gpus = {8, 16, 32, 64, 128, 256, 512};
  std::vector<std::string> paths;
  double parameters_millions = 336;  // BERT-large
  double tokens_per_gpu = 16384;     // of one step: 32 sequences of 512
  double utilization = 0.4;
  double bucket_mib = 25;
  double segment_kib = 512;
  // About 250 bytes of plan each, and a microsecond per bucket.
  int64_t most_messages = 20'000'000;
  std::string json;
};

// The forward pass takes 2 operations per parameter and token, the backward pass 4.
double ComputeSeconds(const Options& options, const NetworkModel& network) {
  return 6 * options.parameters_millions * 1e6 * options.tokens_per_gpu /
         (network.flops_per_s * options.utilization);
}

absl::StatusOr<nlohmann::json> Row(const Options& options, const NetworkModel& network,
                                   const Path& path, int gpus) {
  const TrainingStep step = {.parameters = static_cast<int64_t>(options.parameters_millions * 1e6),
                             .bucket_bytes = static_cast<int64_t>(options.bucket_mib * (1 << 20)),
                             .segment_bytes = static_cast<int64_t>(options.segment_kib * (1 << 10)),
                             .compute_s = ComputeSeconds(options, network)};
  nlohmann::json row = {{"path", path.name},
                        {"preset", network.name},
                        {"gpus", gpus},
                        {"gradient_bytes", step.parameters * 4},
                        {"compute_ms", step.compute_s * 1e3}};
  const auto messages = MessagesOfStep(network, gpus, path.algorithm, step);
  if (!messages.ok()) return messages.status();
  if (*messages > options.most_messages) {
    std::printf("%-17s %6d   not simulated: %lld messages or more (see --most-messages)\n",
                path.name.c_str(), gpus, static_cast<long long>(*messages));
    return nlohmann::json();
  }
  const auto result = SimulateStep(network, gpus, path.algorithm, step);
  if (!result.ok()) return result.status();
  std::printf("%-17s %6d %12.1f %12.1f %11.1f%% %12lld\n", path.name.c_str(), gpus,
              result->step_s * 1e3, result->reducing_s * 1e3, result->efficiency * 100,
              static_cast<long long>(result->messages));
  std::fflush(stdout);
  row["step_ms"] = result->step_s * 1e3;
  row["reducing_ms"] = result->reducing_s * 1e3;
  row["scaling_efficiency"] = result->efficiency;
  row["messages"] = result->messages;
  return row;
}

int Run(const Options& options, const NetworkModel& network, std::ofstream* json) {
  std::printf("%s: %d GPUs and %d x %.0f Gbit/s for data per host, %.0f us between hosts\n",
              network.name.c_str(), network.ranks_per_host, network.cards_per_host,
              network.between_bytes_per_s * 8e-9, network.between_latency_s * 1e6);
  std::printf(
      "%.0f million parameters (%.2f GB of f32 gradients) in buckets of %.0f MiB; computing "
      "takes %.1f ms\n\n",
      options.parameters_millions, options.parameters_millions * 4e-3, options.bucket_mib,
      ComputeSeconds(options, network) * 1e3);
  std::printf("%-17s %6s %12s %12s %12s %12s\n", "path", "GPUs", "step (ms)", "reduce (ms)",
              "efficiency", "messages");
  nlohmann::json rows = nlohmann::json::array();
  std::map<std::string, int> half;  // where a path has lost half of the machines
  for (const Path& path : Paths()) {
    if (!options.paths.empty() &&
        std::find(options.paths.begin(), options.paths.end(), path.name) == options.paths.end()) {
      continue;
    }
    for (int gpus : options.gpus) {
      absl::StatusOr<nlohmann::json> row = Row(options, network, path, gpus);
      if (!row.ok()) {
        std::fprintf(stderr, "bench-simulate: %s with %d GPUs: %s\n", path.name.c_str(), gpus,
                     std::string(row.status().message()).c_str());
        return 2;
      }
      if (row->is_null()) continue;
      if ((*row)["scaling_efficiency"] < 0.5) half.try_emplace(path.name, gpus);
      rows.push_back(*std::move(row));
    }
  }
  std::printf("\n");
  for (const auto& [name, gpus] : half) {
    std::printf("%s loses half of the machines from %d GPUs on (of those tried)\n", name.c_str(),
                gpus);
  }
  if (json == nullptr) return 0;
  *json << rows.dump(1) << std::endl;
  if (!*json) {
    std::fprintf(stderr, "bench-simulate: --json %s: cannot write the file\n",
                 options.json.c_str());
    return 1;
  }
  return 0;
}

int Main(int argc, char** argv) {
  CLI::App app("Simulates data-parallel training steps on modelled networks.", "bench-simulate");
  Options options;
  std::vector<std::string> names;
  for (const Path& path : Paths()) names.push_back(path.name);
  app.add_option("--preset", options.preset,
                 "Network: " + absl::StrJoin(NetworkPresetNames(), ", "))
      ->capture_default_str();
  app.add_option("--gpus", options.gpus, "Numbers of GPUs, such as 8,64,512")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1, kMaxScheduleRanks));
  app.add_option("--paths", options.paths, "Of " + absl::StrJoin(names, ", ") + "; all by default")
      ->delimiter(',')
      ->check(CLI::IsMember(names));
  app.add_option("--parameters-millions", options.parameters_millions, "Of the model")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 1e6));
  app.add_option("--tokens-per-gpu", options.tokens_per_gpu, "Of one step")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 1e9));
  app.add_option("--utilization", options.utilization, "Of the GPU's rate, while it computes")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 1.0));
  app.add_option("--bucket-mib", options.bucket_mib, "Size of gradient buckets")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 1e5));
  app.add_option("--segment-kib", options.segment_kib, "Size of segments of a message")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 1e6));
  app.add_option("--most-messages", options.most_messages,
                 "Leave out what sends more (memory and time grow with them)")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000'000}));
  app.add_option("--json", options.json, "Write the rows here");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "bench-simulate: %s (see --help)\n", error.what());
    return 2;
  }
  const absl::StatusOr<NetworkModel> network = NetworkPreset(options.preset);
  if (!network.ok()) {
    std::fprintf(stderr, "bench-simulate: --preset: %s\n",
                 std::string(network.status().message()).c_str());
    return 2;
  }
  std::ofstream json;
  if (!options.json.empty()) {
    json.open(options.json);
    if (!json) {
      std::fprintf(stderr, "bench-simulate: --json %s: cannot write the file\n",
                   options.json.c_str());
      return 2;
    }
  }
  return Run(options, *network, options.json.empty() ? nullptr : &json);
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  return muster::EndOutput("bench-simulate", muster::Main(argc, argv));
}
