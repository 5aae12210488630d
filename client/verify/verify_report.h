// What `muster verify` has found, as a table for people and as JSON for scripts. Pure and
// thread-safe.
#ifndef MUSTER_CLIENT_VERIFY_VERIFY_REPORT_H_
#define MUSTER_CLIENT_VERIFY_VERIFY_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/verify/locate.h"
#include "client/verify/verify_plan.h"

namespace muster {

enum class Verdict : uint8_t {
  kReference,  // what the others are compared with
  kEqual,
  kDiffers,
  kFailed,   // it did not come to its end, or not as planned
  kSkipped,  // the job, or this host, can't do it
};

const char* Name(Verdict verdict);

struct VerifyResult {
  VerifyRun run;
  Verdict verdict = Verdict::kFailed;
  int64_t steps = 0;
  std::string parameters_sha256;  // empty: it has none
  std::string reason;             // of a failed or skipped run
  std::optional<int64_t> killed_after;
  std::optional<Location> location;  // where a run differs
};

// Whether nothing differs or has failed, and something was compared.
bool AllEqual(const std::vector<VerifyResult>& results);

// The head of the table, and the line of a run.
std::string HeadLine();
std::string ResultLine(const VerifyResult& result);
// What stands below the table: what the runs with switches did, where runs differ, and the sum.
std::vector<std::string> ClosingLines(const std::vector<VerifyResult>& results);

// {"job", "workers", "servers", "steps", "seed", "equal", "runs": [{"name", "strategy", "switches":
// [{"after_step", "strategy"}], "killed_worker", "killed_after_step", "verdict", "steps",
// "parameters_sha256", "reason", "difference": {"step", "last_equal_step", "strategy", "tensor",
// "of", "what", "element", "index", "bits", "values", "differing_elements", "elements",
// "differing_tensors", "tensors", "checkpoints"} or {"problem"}}]}. What there is not is null.
std::string VerifyJson(const std::string& job, const VerifyPlanOptions& options,
                       const std::vector<VerifyResult>& results);

}  // namespace muster

#endif  // MUSTER_CLIENT_VERIFY_VERIFY_REPORT_H_
