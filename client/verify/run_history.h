// What a run has really done: whether its steps were taken by whom the plan says. Two runs that end
// with the same bits prove nothing of a strategy that was never in force.
//
// ReadSteps reads a file; the rest is pure. Thread-safe.
#ifndef MUSTER_CLIENT_VERIFY_RUN_HISTORY_H_
#define MUSTER_CLIENT_VERIFY_RUN_HISTORY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/file.h"
#include "client/verify/verify_plan.h"
#include "muster/v1/coordinator.pb.h"

namespace muster {

struct StepRecord {
  int64_t step = 0;
  uint64_t epoch = 0;
  int members = 0;  // parameter servers included
};

// The steps of a metrics.jsonl, in order, each once: a step that was redone counts with its last
// record. Lines that are torn, by the death of their writer, are left out.
std::vector<StepRecord> ParseSteps(absl::string_view metrics);
// NOT_FOUND if there is no such file.
absl::StatusOr<std::vector<StepRecord>> ReadSteps(FileSystem& files, const std::string& path);

// How the run was not as planned, for people; empty if it was. `job` is its last state.
std::string HistoryProblem(const VerifyRun& run, const VerifyPlanOptions& options,
                           const v1::Job& job, const std::vector<StepRecord>& steps);

// The last step before the first that was taken after the death of the worker; absent if it did not
// die, or nothing is known of the steps after it.
std::optional<int64_t> StepOfDeath(const v1::Job& job, const std::vector<StepRecord>& steps,
                                   absl::string_view worker);

}  // namespace muster

#endif  // MUSTER_CLIENT_VERIFY_RUN_HISTORY_H_
