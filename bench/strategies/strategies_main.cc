// bench-strategies: what each strategy costs a worker in memory and on the network.
//
// Ranks are threads of this process, with a synthetic model of equal blocks and AdamW; a step is a
// pass without compute over all blocks, and the update. Memory is what the allocator has handed out
// (allocations.h), by rank, beside the formulas of the ZeRO paper (Rajbhandari et al., SC 2020,
// section 5) and the buffers of single blocks that step_buffers.h states. Bytes on the network are
// those that a rank hands to its transport in one step, headers and the commit included: of
// gradients sent as they are beside the paper's, and of compressed ones beside what follows from
// the codecs (docs/algorithms.md, Compressed gradients). With hybrid sharding (base/control/
// shard_groups.h) the formulas are those of a group, and what crosses is an all-reduce of shards.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/control/placement.h"
#include "base/daemon.h"
#include "base/status_macros.h"
#include "bench/strategies/allocations.h"
#include "bench/strategies/counting_transport.h"
#include "collectives/transport/in_process_transport.h"
#include "state/view_map.h"
#include "worker/compression/gradient_codec.h"
#include "worker/runtime/replica.h"
#include "worker/runtime/step_memory.h"
#include "worker/sync/shard_mesh.h"

namespace muster::bench {
namespace {

struct Settings {
  int64_t parameters = 16 << 20;
  int blocks = 64;
  int64_t bucket_bytes = 1 << 20;
  std::vector<int> ranks = {1, 2, 4, 8};
  std::string json;
};

struct Types {
  DType parameters = DType::kF32;
  DType gradients = DType::kF32;
  GradientCompression compression;
};

struct Row {
  Strategy strategy;
  int workers = 1;
  DType precision = DType::kBF16;
  double held = 0;             // bytes a worker holds between steps, per parameter
  double formula = 0;          // of the paper
  double buffers = 0;          // of single blocks, as stated
  double most = 0;             // the most during a step
  double sent = 0;             // elements a worker sends in a step, per parameter
  double expected = 0;         // of the paper
  double across = 0;           // of `sent`, to other groups
  double expected_across = 0;  // of it
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

  absl::Status Step(const ShardMesh& mesh, const View& view, const Types& types,
                    muster::Step step) {
    StepMemory memory(replica, mesh, view,
                      {.dtype = types.gradients, .compression = types.compression});
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

Row Measure(const Settings& settings, int workers, const Strategy& strategy, const Types& types) {
  const DType precision = types.parameters;
  const Layout layout = MakeLayout(settings, precision);
  const auto rule = UpdateRule::Create(AdamWOptions{}, layout).value();
  const View view = MakeView(workers, strategy);
  const ViewMap map = MapOf(view, layout).value();
  const size_t ranks = view.members.size();
  const ShardGroups groups = GroupsOf(view);
  const auto group_of = [&](size_t rank) {
    for (const std::vector<Rank>& group : groups.groups) {
      if (std::find(group.begin(), group.end(), static_cast<Rank>(rank)) != group.end()) {
        return group;
      }
    }
    return std::vector<Rank>();
  };
  std::vector<SentBytes> sent(ranks);
  auto mesh = MakeInProcessMesh(static_cast<int>(ranks));
  std::vector<std::unique_ptr<Communicator>> communicators(ranks);
  OnEachRank(ranks, [&](size_t rank) {
    communicators[rank] =
        Communicator::Create(
            std::make_unique<CountingTransport>(std::move(mesh[rank]), group_of(rank), sent[rank]))
            .value();
  });
  std::vector<std::optional<ShardMesh>> meshes(ranks);
  OnEachRank(ranks, [&](size_t rank) {
    meshes[rank] = ShardMesh::Connect(*communicators[rank], view, absl::Minutes(1)).value();
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
                                                 .gradients = types.gradients,
                                                 .carries = Carries(types.compression)});
    MUSTER_CHECK(equipped.ok()) << equipped;
  });
  const int64_t held = AllocatedBytes() - before;
  const auto step_all = [&](muster::Step step) {
    OnEachRank(ranks, [&](size_t rank) {
      const absl::Status status = members[rank]->Step(*meshes[rank], view, types, step);
      MUSTER_CHECK(status.ok()) << status;
    });
  };
  step_all(1);  // plans and scratch are made in the first
  ResetPeak();
  for (SentBytes& bytes : sent) bytes.all = bytes.across = 0;
  step_all(2);

  const auto p = static_cast<double>(layout.padded_count());
  const double n = groups.size();
  const double g = groups.count();
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
  row.expected_across = 2 * (g - 1) / g / n;
  row.expected += row.expected_across;
  for (const SentBytes& each : sent) {
    row.sent += static_cast<double>(each.all) / share / p / bytes;
    row.across += static_cast<double>(each.across) / share / p / bytes;
  }
  return row;
}

// Bytes that a worker sends per f32 parameter in a step, without headers, as the schedules say.
double BytesOf(const Types& types, int stage, double n) {
  const double parameters = stage == 0 ? 0 : stage == 3 ? 8 : 4;
  if (types.compression.kind == GradientCompression::Kind::kNone) {
    const auto bytes = static_cast<double>(SizeOf(types.gradients));
    return (n - 1) / n * ((stage == 0 ? 2 : 1) * bytes + parameters);
  }
  const GradientCodec codec(types.compression);
  const double code = static_cast<double>(codec.BytesOf(codec.block_elements())) /
                      static_cast<double>(codec.block_elements());
  if (stage > 0) return (n - 1) / n * (code + parameters);
  return std::min((n - 1) * code, (n - 1) / n * (code + 2));
}

// The second table: what the types of gradients cost on the network.
void MeasureGradients(const Settings& settings, nlohmann::ordered_json& results) {
  using Kind = GradientCompression::Kind;
  const std::pair<const char*, Types> kinds[] = {
      {"f32", {}},
      {"bf16", {.gradients = DType::kBF16}},
      {"int8", {.gradients = DType::kBF16, .compression = {.kind = Kind::kInt8}}},
      {"top-k 0.01",
       {.gradients = DType::kBF16, .compression = {.kind = Kind::kTopK, .top_k_fraction = 0.01}}}};
  std::printf(
      "\ngradients of f32 parameters; bytes sent per parameter, worker and step\n"
      "%-10s %-10s %5s  %8s %8s %7s %7s\n",
      "strategy", "gradients", "ranks", "sent", "formula", "ratio", "of f32");
  for (const int workers : settings.ranks) {
    if (workers == 1) continue;
    for (const int stage : {0, 2, 3}) {
      double full = 0;
      for (const auto& [name, types] : kinds) {
        const Row row = Measure(settings, workers, {.stage = stage, .replicas = 0}, types);
        const double sent = row.sent * sizeof(float);
        const double formula = BytesOf(types, stage, workers);
        if (full == 0) full = sent;
        std::printf("stage %-4d %-10s %5d  %8.4f %8.4f %7.3f %7.3f\n", stage, name, workers, sent,
                    formula, sent / formula, sent / full);
        std::fflush(stdout);
        results.push_back({{"strategy", ToString(row.strategy)},
                           {"workers", workers},
                           {"gradients", name},
                           {"sent_bytes_per_parameter", sent},
                           {"formula_bytes_per_parameter", formula},
                           {"of_f32", sent / full}});
      }
    }
  }
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

// The third: groups that each hold everything.
void MeasureGroups(const Settings& settings, nlohmann::ordered_json& results) {
  std::printf(
      "\nhybrid: groups of workers; bytes and elements per parameter and worker\n"
      "%-10s %5s %6s %5s  %8s %8s %8s %7s  %8s %8s %7s  %8s %8s %7s\n",
      "strategy", "type", "groups", "of", "held", "formula", "buffers", "ratio", "sent", "formula",
      "ratio", "across", "formula", "ratio");
  for (const DType precision : {DType::kBF16, DType::kF32}) {
    for (const auto& [groups, size] : {std::pair(2, 2), {2, 4}, {4, 2}}) {
      for (int stage = 1; stage <= kMaxStage; ++stage) {
        const Row row =
            Measure(settings, groups * size, {.stage = stage, .replicas = 0, .group_size = size},
                    {.parameters = precision, .gradients = precision});
        std::printf(
            "stage %-4d %5s %6d %5d  %8.3f %8.3f %8.3f %7.3f  %8.4f %8.4f %7.3f  %8.4f %8.4f "
            "%7.3f\n",
            stage, std::string(Name(precision)).c_str(), groups, size, row.held, row.formula,
            row.buffers, (row.held - row.buffers) / row.formula, row.sent, row.expected,
            row.sent / row.expected, row.across, row.expected_across,
            row.across / row.expected_across);
        std::fflush(stdout);
        nlohmann::ordered_json& result = results.emplace_back(ToJson(row));
        result["across_elements_per_parameter"] = row.across;
        result["expected_across_elements_per_parameter"] = row.expected_across;
      }
    }
  }
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
        const Row row = Measure(settings, workers, {.stage = stage, .replicas = 0},
                                {.parameters = precision, .gradients = precision});
        std::printf("stage %-4d %5s %5d  %8.3f %8.3f %8.3f %7.3f %8.3f  %8.4f %8.4f %7.3f\n", stage,
                    std::string(Name(precision)).c_str(), workers, row.held, row.formula,
                    row.buffers, (row.held - row.buffers) / row.formula, row.most, row.sent,
                    row.expected, row.expected > 0 ? row.sent / row.expected : std::nan(""));
        std::fflush(stdout);
        results.push_back(ToJson(row));
      }
    }
  }
  MeasureGradients(settings, results);
  MeasureGroups(settings, results);
  if (settings.json.empty()) return 0;
  std::ofstream file(settings.json);
  file << results.dump(2) << "\n";
  if (file.good()) return 0;
  std::fprintf(stderr, "bench-strategies: cannot write %s\n", settings.json.c_str());
  return 1;
}

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) {
  return muster::EndOutput("bench-strategies", muster::bench::Main(argc, argv));
}
