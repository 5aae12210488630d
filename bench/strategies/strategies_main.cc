// bench-strategies: what each strategy costs a worker in memory and on the network.
//
// Ranks are threads of this process, with a synthetic model of equal blocks and AdamW; a step is a
// pass without compute over all blocks, and the update. Memory is what the allocator has handed out
// (allocations.h), by rank, beside the formulas of the ZeRO paper (Rajbhandari et al., SC 2020,
// section 5) and the buffers of single blocks that step_buffers.h states. Bytes on the network are
// those that a rank hands to its transport in one step, headers and the commit included.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/daemon.h"
#include "base/status_macros.h"
#include "bench/strategies/allocations.h"
#include "bench/strategies/counting_transport.h"
#include "collectives/transport/in_process_transport.h"
#include "state/view_map.h"
#include "worker/runtime/replica.h"
#include "worker/runtime/step_memory.h"

namespace muster::bench {
namespace {

struct Settings {
  int64_t parameters = 16 << 20;
  int blocks = 64;
  int64_t bucket_bytes = 1 << 20;
  std::vector<int> ranks = {1, 2, 4, 8};
  std::string json;
};

struct Row {
  Strategy strategy;
  int workers = 1;
  DType precision = DType::kBF16;
  double held = 0;      // bytes a worker holds between steps, per parameter
  double formula = 0;   // of the paper
  double buffers = 0;   // of single blocks, as stated
  double most = 0;      // the most during a step
  double sent = 0;      // elements a worker sends in a step, per parameter
  double expected = 0;  // of the paper
};

Layout MakeLayout(const Settings& settings, DType precision) {
  std::vector<TensorSpec> tensors;
  for (int block = 0; block < settings.blocks; ++block) {
    TensorSpec spec;
    spec.name = absl::StrCat("block", block);
    spec.shape = {settings.parameters / settings.blocks};
    spec.block = block;
    spec.initializer = Initializer::kUniform;
    spec.scale = 0.1f;
    tensors.push_back(std::move(spec));
  }
  return Layout::Create(std::move(tensors),
                        settings.bucket_bytes / static_cast<int64_t>(SizeOf(precision)))
      .value();
}

View MakeView(int workers, const Strategy& strategy) {
  View view;
  view.epoch = 1;
  view.strategy = strategy;
  for (int rank = 0; rank < workers + strategy.servers; ++rank) {
    view.members.emplace_back();
    view.members.back().incarnation = Incarnation{static_cast<uint64_t>(rank) + 1};
    view.members.back().host = absl::StrCat(rank);
    if (rank >= workers) view.members.back().role = MemberRole::kParameterServer;
  }
  return view;
}

// One rank, from its memory to the update.
struct Worker {
  Worker(const Layout& layout, const UpdateRule& rule)
      : replica(layout, rule,
                {.schedule = LearningRateSchedule::kConstant, .peak = 1e-3, .total_steps = 1000},
                /*clip_norm=*/0) {}

  absl::Status Step(Communicator& communicator, const View& view, DType precision,
                    muster::Step step) {
    StepMemory memory(replica, communicator, view, {.dtype = precision});
    memory.BeginStep(step);
    memory.BeginPass(/*reduces=*/true);
    MUSTER_RETURN_IF_ERROR(memory.DryPass());
    MUSTER_RETURN_IF_ERROR(memory.FinishGradients());
    CommitContribution contribution;
    contribution.samples = 1;
    for (const Range& range : memory.exchange().NormRanges()) {
      replica.buffers().AddReducedSquares(range, contribution.squared_gradient);
    }
    MUSTER_ASSIGN_OR_RETURN(const CommitRecord record,
                            memory.exchange().Commit(step, view.epoch, contribution));
    replica.Apply(record);
    return absl::OkStatus();
  }

  Replica replica;
};

void OnEachRank(size_t ranks, absl::FunctionRef<void(size_t)> work) {
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks; ++rank) threads.emplace_back([&work, rank] { work(rank); });
  for (std::thread& thread : threads) thread.join();
}

Row Measure(const Settings& settings, int workers, const Strategy& strategy, DType precision) {
  const Layout layout = MakeLayout(settings, precision);
  const auto rule = UpdateRule::Create(AdamWOptions{}, layout).value();
  const View view = MakeView(workers, strategy);
  const ViewMap map = MapOf(view, layout).value();
  const size_t ranks = view.members.size();
  std::vector<std::atomic<int64_t>> sent(ranks);
  auto mesh = MakeInProcessMesh(static_cast<int>(ranks));
  std::vector<std::unique_ptr<Communicator>> communicators(ranks);
  OnEachRank(ranks, [&](size_t rank) {
    communicators[rank] =
        Communicator::Create(std::make_unique<CountingTransport>(std::move(mesh[rank]), sent[rank]))
            .value();
  });
  std::vector<std::unique_ptr<Worker>> members(ranks);
  const int64_t before = AllocatedBytes();
  OnEachRank(ranks, [&](size_t rank) {
    members[rank] = std::make_unique<Worker>(layout, *rule);
    const Rank self = static_cast<Rank>(rank);
    const bool computes = self < workers;
    Replica& replica = members[rank]->replica;
    replica.Initialize(1, StateTag{}, map.map.RangesHeldBy(self));
    const absl::Status equipped = replica.Equip({.stage = strategy.sharded_stage(),
                                                 .computes = computes,
                                                 .parameters = precision,
                                                 .gradients = precision});
    MUSTER_CHECK(equipped.ok()) << equipped;
  });
  const int64_t held = AllocatedBytes() - before;
  const auto step_all = [&](muster::Step step) {
    OnEachRank(ranks, [&](size_t rank) {
      const absl::Status status = members[rank]->Step(*communicators[rank], view, precision, step);
      MUSTER_CHECK(status.ok()) << status;
    });
  };
  step_all(1);  // plans and scratch are made in the first
  ResetPeak();
  for (auto& count : sent) count = 0;
  step_all(2);

  const auto p = static_cast<double>(layout.padded_count());
  const double n = workers;
  const auto bytes = static_cast<double>(SizeOf(precision));
  const bool half = IsHalfPrecision(precision);
  const double kept = 12;  // f32 parameters and two slots
  // The update rule's f32 parameters serve compute as well where they are all here.
  const double parameters = half ? bytes : 0;
  const auto share = static_cast<double>(ranks);
  Row row{.strategy = strategy, .workers = workers, .precision = precision};
  row.held = static_cast<double>(held) / share / p;
  row.most = static_cast<double>(PeakBytes() - before) / share / p;
  const double block = static_cast<double>(layout.padded_count()) / settings.blocks / p;
  switch (strategy.stage) {
    case 0:
      row.formula = parameters + bytes + kept;
      row.buffers = half ? 8 * block : 0;
      row.expected = 2 * (n - 1) / n;
      break;
    case 1:
      row.formula = bytes + bytes + kept / n;
      row.buffers = half ? 8 * block : 0;
      row.expected = 2 * (n - 1) / n;
      break;
    case 2:
      row.formula = bytes + (bytes + kept) / n;
      row.buffers = (half ? 8 : 0) * block + StepBuffers::kBlockBuffers * bytes * block;
      row.expected = 2 * (n - 1) / n;
      break;
    default:
      row.formula = (parameters + bytes + kept) / n;
      row.buffers = (half ? 8 : 0) * block + 2 * StepBuffers::kBlockBuffers * bytes * block;
      row.expected = 3 * (n - 1) / n;
      break;
  }
  int64_t all = 0;
  for (const auto& count : sent) all += count.load();
  row.sent = static_cast<double>(all) / share / p / bytes;
  return row;
}

nlohmann::ordered_json ToJson(const Row& row) {
  return {{"strategy", ToString(row.strategy)},
          {"workers", row.workers},
          {"precision", Name(row.precision)},
          {"held_bytes_per_parameter", row.held},
          {"formula_bytes_per_parameter", row.formula},
          {"buffer_bytes_per_parameter", row.buffers},
          {"peak_bytes_per_parameter", row.most},
          {"sent_elements_per_parameter", row.sent},
          {"expected_elements_per_parameter", row.expected}};
}

int Main(int argc, char** argv) {
  CLI::App app("Memory and network traffic of each strategy.", "bench-strategies");
  Settings settings;
  app.add_option("--parameters", settings.parameters, "Of the model")->capture_default_str();
  app.add_option("--blocks", settings.blocks, "Equal blocks of the model")
      ->capture_default_str()
      ->check(CLI::Range(1, 100'000));
  app.add_option("--ranks", settings.ranks, "Numbers of workers")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--json", settings.json, "Writes an array of objects there");
  CLI11_PARSE(app, argc, argv);
  TuneProcess();
  std::printf(
      "%lld parameters in %d blocks, AdamW, no replicas; bytes and elements per parameter "
      "and worker\n%-10s %5s %5s  %8s %8s %8s %7s %8s  %8s %8s %7s\n",
      static_cast<long long>(settings.parameters), settings.blocks, "strategy", "type", "ranks",
      "held", "formula", "buffers", "ratio", "peak", "sent", "formula", "ratio");
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const DType precision : {DType::kBF16, DType::kF32}) {
    for (const int workers : settings.ranks) {
      for (int stage = 0; stage <= kMaxStage; ++stage) {
        const Row row = Measure(settings, workers, {.stage = stage, .replicas = 0}, precision);
        std::printf("stage %-4d %5s %5d  %8.3f %8.3f %8.3f %7.3f %8.3f  %8.4f %8.4f %7.3f\n", stage,
                    std::string(Name(precision)).c_str(), workers, row.held, row.formula,
                    row.buffers, (row.held - row.buffers) / row.formula, row.most, row.sent,
                    row.expected, row.expected > 0 ? row.sent / row.expected : std::nan(""));
        std::fflush(stdout);
        results.push_back(ToJson(row));
      }
    }
  }
  if (settings.json.empty()) return 0;
  std::ofstream file(settings.json);
  file << results.dump(2) << "\n";
  if (file.good()) return 0;
  std::fprintf(stderr, "bench-strategies: cannot write %s\n", settings.json.c_str());
  return 1;
}

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) { return muster::bench::Main(argc, argv); }
