#include "client/tune/tune_report.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "client/tune/local_mesh.h"
#include "collectives/tuner/measure.h"
#include "collectives/tuner/tune.h"

namespace muster {
namespace {

// A round of one candidate takes about this long.
constexpr double kRoundSeconds = 4e-3;
constexpr int64_t kMostRepetitions = 400;
constexpr int64_t kElement = sizeof(float);

// Median seconds of each algorithm, which take turns; on rank 0's clock.
absl::StatusOr<std::vector<double>> TimeAlgorithms(LocalMesh& mesh, Communicator& communicator,
                                                   const TuneRequest& request, int64_t count,
                                                   const std::vector<Algorithm>& algorithms) {
  MUSTER_ASSIGN_OR_RETURN(float* const input, mesh.Allocate(communicator.rank(), count));
  MUSTER_ASSIGN_OR_RETURN(float* const output, mesh.Allocate(communicator.rank(), count));
  std::fill(input, input + count, 1.0f);
  std::vector<std::vector<double>> times(algorithms.size());
  std::vector<int64_t> repetitions(algorithms.size(), 2);
  CollectiveOptions waiting;
  waiting.caller_waits = true;
  for (int round = -2; round < request.rounds; ++round) {  // The first two warm up.
    for (size_t i = 0; i < algorithms.size(); ++i) {
      MUSTER_RETURN_IF_ERROR(communicator.Barrier(waiting).Wait());
      // How long waits spin is learnt from those before, which were another algorithm's.
      for (int64_t n = 0; n < repetitions[i] / 4; ++n) {
        MUSTER_RETURN_IF_ERROR(
            RunCollective(communicator, request.collective, count, algorithms[i], input, output));
      }
      const absl::Time start = absl::Now();
      for (int64_t n = 0; n < repetitions[i]; ++n) {
        MUSTER_RETURN_IF_ERROR(
            RunCollective(communicator, request.collective, count, algorithms[i], input, output));
      }
      const double seconds =
          absl::ToDoubleSeconds(absl::Now() - start) / static_cast<double>(repetitions[i]);
      if (round >= 0) times[i].push_back(seconds);
      if (round == -1) {
        repetitions[i] = std::clamp(static_cast<int64_t>(kRoundSeconds / std::max(seconds, 1e-9)),
                                    int64_t{1}, kMostRepetitions);
        int64_t* const all = &repetitions[i];
        MUSTER_RETURN_IF_ERROR(communicator.Broadcast(all, all, 1, DType::kI64, 0, waiting).Wait());
      }
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& each : times) {
    std::sort(each.begin(), each.end());
    medians.push_back(each[each.size() / 2]);
  }
  return medians;
}

absl::Status Verify(LocalMesh& mesh, const TuneRequest& request, TuneRow* row) {
  std::vector<Algorithm> algorithms;
  for (const Prediction& each : row->choice.considered) algorithms.push_back(each.algorithm);
  // With other segments than an algorithm that is named, the choice is measured by itself.
  const bool by_itself =
      row->choice.segment_bytes !=
      mesh.At(0).ChoiceRequestFor(request.collective, 1, DType::kF32).segment_bytes;
  if (by_itself) algorithms.push_back(Algorithm::kAuto);
  std::vector<double> medians;
  MUSTER_RETURN_IF_ERROR(mesh.OnAllRanks([&](Communicator& communicator) -> absl::Status {
    MUSTER_ASSIGN_OR_RETURN(
        std::vector<double> own,
        TimeAlgorithms(mesh, communicator, request, row->bytes / kElement, algorithms));
    if (communicator.rank() == 0) medians = std::move(own);
    return absl::OkStatus();
  }));
  row->chosen_seconds = by_itself ? medians.back() : medians.front();
  row->best_seconds = row->chosen_seconds;
  row->best = row->choice.algorithm;
  for (size_t i = 0; i < row->choice.considered.size(); ++i) {
    row->measured.push_back(medians[i]);
    if (medians[i] < row->best_seconds) {
      row->best_seconds = medians[i];
      row->best = algorithms[i];
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TuneReport> MakeTuneReport(const TuneRequest& request, FileSystem& files) {
  CommunicatorOptions options;
  options.any_order = request.any_order;
  MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<LocalMesh> mesh,
                          LocalMesh::Create(request.transport, request.ranks, options));
  TuneOptions tune;
  tune.identity.transport = mesh->At(0).transport_name();
  tune.identity.hosts.assign(static_cast<size_t>(request.ranks), request.host);
  tune.identity.any_order = request.any_order;
  tune.identity.software_version = request.software_version;
  tune.measure.budget = request.budget;
  tune.measure.collectives = {request.collective};
  if (request.collective == Collective::kAllReduce) tune.cache_directory = request.cache_directory;
  TuneReport report;
  MUSTER_RETURN_IF_ERROR(mesh->OnAllRanks([&](Communicator& communicator) -> absl::Status {
    MUSTER_ASSIGN_OR_RETURN(Tuned tuned, TuneCommunicator(communicator, files, tune, nullptr));
    if (communicator.rank() != 0) return absl::OkStatus();
    report.model = std::move(tuned.model);
    report.source = std::move(tuned.source);
    report.warnings = std::move(tuned.warnings);
    return absl::OkStatus();
  }));
  if (const absl::Status measured = CheckMeasured(*report.model); !measured.ok()) {
    return Annotate(measured,
                    absl::StrCat("a budget of ", absl::FormatDuration(request.budget),
                                 " is too short on this machine, or it is busy; try --budget-ms ",
                                 4 * absl::ToInt64Milliseconds(request.budget)));
  }
  for (const int64_t bytes : request.bytes) {
    const ChoiceRequest question =
        mesh->At(0).ChoiceRequestFor(request.collective, bytes / kElement, DType::kF32);
    TuneRow row;
    row.bytes = bytes;
    row.choice = Choose(*report.model, question);
    row.why = Explain(*report.model, question, row.choice);
    if (request.verify) MUSTER_RETURN_IF_ERROR(Verify(*mesh, request, &row));
    report.rows.push_back(std::move(row));
  }
  return report;
}

}  // namespace muster
