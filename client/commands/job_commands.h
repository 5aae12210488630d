// The subcommands of `muster` that talk to a running coordinator. Each returns the process's exit
// code: 0, 1 (the coordinator cannot be reached or refuses, the job failed or had ended already,
// the answer could not be written) or 2 (wrong usage or a bad job file).
#ifndef MUSTER_CLIENT_COMMANDS_JOB_COMMANDS_H_
#define MUSTER_CLIENT_COMMANDS_JOB_COMMANDS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "client/output/console.h"

namespace muster {

struct ClientCommandOptions {
  std::string coordinator = "127.0.0.1:7070";
  // For scripts: JSON instead of text, one object a line.
  bool json = false;
  // Who follows a job gives up a coordinator that was lost and cannot be reached again for so long;
  // 0: never.
  int64_t reconnect_s = 600;
};

struct SubmitOptions {
  std::string file;
  bool wait = false;       // follow the job to its end
  std::string request_id;  // names the submission, so that it can be repeated; empty: it is new
};
int SubmitCommand(const ClientCommandOptions& options, const SubmitOptions& submit,
                  Console* console);
int WatchCommand(const ClientCommandOptions& options, const std::string& job_id, Console* console);
// An empty `job_id`: all jobs, newest first.
int StatusCommand(const ClientCommandOptions& options, const std::string& job_id, Console* console);
int MembersCommand(const ClientCommandOptions& options, Console* console);
// The newest `last` operations of a rank of the job's view, of all ranks if `rank` is absent. What
// can't be had of a rank is said on standard error, and the exit code is 1 then.
int OperationsCommand(const ClientCommandOptions& options, const std::string& job_id,
                      std::optional<int> rank, size_t last, Console* console);
// What of the job's strategy to change.
struct StrategyChange {
  std::string policy;  // "auto", "manual"; empty: auto stays only if nothing else is given
  std::string sync;  // as in a job file; empty: as it is. Another one drops what goes with the old.
  std::optional<int> servers;
  std::optional<bool> mixed;
  std::optional<int> stage;
  std::string shard_group;  // "all", "host" or how many workers; empty: as it is
  std::optional<int> replicas;
  std::string algorithm;  // as in a job file; "auto": as the job has it; empty: as it is
  std::string transport;  // likewise, or another of its spellings (transport_names.h)

  bool operator==(const StrategyChange&) const = default;
};
// A change of nothing is wrong usage. Waits, for `timeout` at most, until the job trains by it.
int SwitchCommand(const ClientCommandOptions& options, const std::string& job_id,
                  const StrategyChange& change, absl::Duration timeout, Console* console);
// What each strategy would take, and what policy auto makes of it.
int ExplainCommand(const ClientCommandOptions& options, const std::string& job_id,
                   Console* console);
int CancelCommand(const ClientCommandOptions& options, const std::string& job_id, Console* console);

// Of a file to be written at the end of a long run, what can be known before: INVALID_ARGUMENT,
// with `flag` before it, if `path`, behind its links, is a directory or in none. An empty path is
// fine, and so is a device or a pipe.
absl::Status CheckCanBeWritten(FileSystem& files, const std::string& path, const char* flag);

// Says "muster: what" on standard error and returns `exit_code`.
int Complain(const absl::Status& status, int exit_code);

}  // namespace muster

#endif  // MUSTER_CLIENT_COMMANDS_JOB_COMMANDS_H_
