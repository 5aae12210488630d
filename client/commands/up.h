// `muster up`: a coordinator and workers on this machine for one job, from start to summary.
#ifndef MUSTER_CLIENT_COMMANDS_UP_H_
#define MUSTER_CLIENT_COMMANDS_UP_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/output/console.h"
#include "muster/v1/job.pb.h"

namespace muster {

struct UpOptions {
  std::string binary_directory;  // of the daemons
  std::string job_file;          // empty: start the fleet and wait for Ctrl-C
  int workers = 4;
  int servers = 0;            // parameter servers
  int threads = 1;            // per worker
  int64_t steps = 0;          // instead of the job's own number; 0: as the job says
  std::string run_directory;  // logs, metrics, checkpoints; created
  std::string summary_file;   // empty: none
  std::string pid_file;       // empty: none
  std::string listen = "127.0.0.1:0";
  int64_t heartbeat_ms = 250;
  int64_t lease_ms = 2000;
  bool respawn = false;  // replace workers that die
  bool metrics = false;
  // A run fails whose job shows no progress for so long.
  absl::Duration stall_timeout = absl::InfiniteDuration();
  std::string log_level = "info";
  bool json = false;
};

// The job as `up` runs it: starts with all the workers there are, takes `options.steps` (with
// a shorter warm-up where it must be), and writes checkpoints to the run directory unless it names
// another. INVALID_ARGUMENT if that is no valid job.
absl::StatusOr<v1::JobDescription> AdaptJob(v1::JobDescription job, const UpOptions& options);

// Runs until the job has ended or a signal comes; then ends all it started. Call from the main
// thread, before any other thread has been started. Returns the exit code: 0, 1 (the job failed, a
// process could not be started, interrupted) or 2 (bad options or job file). A second signal kills
// at once. The daemons' logs go to `console`, with `options.json` to standard error, prefixed by
// process.
int UpCommand(const UpOptions& options, Console* console);

}  // namespace muster

#endif  // MUSTER_CLIENT_COMMANDS_UP_H_
