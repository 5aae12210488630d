// `muster verify`: whether a job ends with the same bits whatever its strategy.
#ifndef MUSTER_CLIENT_COMMANDS_VERIFY_H_
#define MUSTER_CLIENT_COMMANDS_VERIFY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/output/console.h"
#include "client/verify/verify_plan.h"

namespace muster {

struct VerifyCommandOptions {
  VerifyPlanOptions plan;
  std::vector<std::string> transports = {"tcp", "shared_memory",
                                         "libfabric"};  // instead of the plan's
  std::string job_file;
  std::string json_file;  // empty: none
  std::string binary_directory;
  std::string run_directory;  // created
  int threads = 1;            // per worker
  // A run fails whose job shows no progress for so long.
  int64_t stall_seconds = 300;
};

// Runs the job under every strategy, with switches, and with switches and a death. Call from the
// main thread, before any other thread has been started. Returns the exit code: 0 (all that could
// be run has equal bits), 1 (something differs, failed or was interrupted) or 2 (bad options or job
// file).
int VerifyCommand(const VerifyCommandOptions& options, Console* console);

}  // namespace muster

#endif  // MUSTER_CLIENT_COMMANDS_VERIFY_H_
