// A coordinator and workers on this machine, as child processes: starts them, merges their logs,
// keeps the pid file, ends them. Everything on loopback.
//
// Not thread-safe: belongs to the main thread (client/launcher/child_process.h). Never waits,
// except in Kill().
#ifndef MUSTER_CLIENT_LAUNCHER_FLEET_H_
#define MUSTER_CLIENT_LAUNCHER_FLEET_H_

#include <poll.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"
#include "client/launcher/child_process.h"
#include "client/launcher/log_view.h"

namespace muster {

struct FleetOptions {
  std::string binary_directory;        // of muster-coordinator and muster-worker
  std::string run_directory;           // receives logs/<process>.log and metrics; exists
  std::string listen = "127.0.0.1:0";  // of the coordinator
  int workers = 4;
  int servers = 0;  // parameter servers
  int threads = 1;  // per worker
  int64_t heartbeat_ms = 250;
  int64_t lease_ms = 2000;
  bool metrics = false;  // Prometheus endpoints, on free ports
  std::string log_level = "info";
  std::string pid_file;  // empty: none
  // A line of a process's log.
  std::function<void(const std::string& process, const LogLine& line)> on_line;
};

class Fleet {
 public:
  struct Exit {
    std::string process;
    int wait_status = 0;
    std::string last_error;  // its last line of level error, for people; may be empty
    bool is_worker = false;  // or a parameter server
  };

  // `files` must outlive the fleet.
  Fleet(FleetOptions options, FileSystem* files);
  // Kills what still runs.
  ~Fleet();

  absl::Status StartCoordinator();
  // Its address once it listens, else nothing.
  absl::StatusOr<std::optional<std::string>> CoordinatorAddress();

  // Parameter servers as well. Requires: CoordinatorAddress() has given the address.
  absl::Status StartWorkers();
  // A new process in place of one that has ended.
  absl::Status RestartWorker(const std::string& name);

  // What to poll for output of the processes.
  void AppendDescriptors(std::vector<pollfd>* descriptors) const;
  // Hands the lines that have come to on_line and to the log files.
  void ReadOutput();
  // The processes that have ended since the last call.
  std::vector<Exit> Reap();

  int running_workers() const;
  int running_servers() const;
  bool coordinator_running() const;
  void SignalWorkers(int signal);
  // Does nothing if there is no such process, or it has ended.
  void SignalWorker(const std::string& name, int signal);
  void SignalCoordinator(int signal);
  // Kills all and waits for their end.
  void Kill();

 private:
  struct Process {
    std::string name;
    bool is_worker = false;  // a muster-worker, in whatever role
    bool is_server = false;
    std::unique_ptr<ChildProcess> child;
    std::unique_ptr<WritableFile> log;
    LineSplitter splitter;
    std::string last_error;
    bool reported = false;  // its end
    int starts = 0;
  };

  absl::Status Start(Process* process, std::vector<std::string> arguments);
  absl::Status StartWorker(Process* process);
  void TakeLine(Process* process, const std::string& line);
  void Read(Process* process);
  absl::Status WritePidFile();
  std::string ReadyFile(const std::string& name) const;
  int Running(bool servers) const;

  const FleetOptions options_;
  FileSystem* const files_;
  std::string coordinator_address_;
  std::vector<std::unique_ptr<Process>> processes_;
};

}  // namespace muster

#endif  // MUSTER_CLIENT_LAUNCHER_FLEET_H_
