// A child process that never outlives its parent, not even one that is killed.
//
// Start it from the main thread only: the kernel kills the child when the *thread* that made it
// ends. Thread-compatible. A child has a process group of its own, so that Ctrl-C reaches only the
// parent, which then ends its children in good order. Its input is empty; output and errors come in
// one pipe.
#ifndef MUSTER_CLIENT_LAUNCHER_CHILD_PROCESS_H_
#define MUSTER_CLIENT_LAUNCHER_CHILD_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace muster {

class ChildProcess {
 public:
  // Runs arguments[0], a path. UNAVAILABLE with the system's reason if that is not possible.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(
      const std::vector<std::string>& arguments);

  // Kills and reaps it if it still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  bool running() const { return !wait_status_.has_value(); }

  // Does nothing once it has been reaped: its pid may belong to another process by then.
  void Signal(int signal);

  // The wait status (see waitpid) if it has ended, else nothing. Never waits.
  std::optional<int> Reap();

  // Takes what it has written so far; empty if there is nothing. Never waits.
  std::string ReadOutput();
  // For poll(); -1 after the end of the output.
  int output_descriptor() const { return output_; }

 private:
  ChildProcess(pid_t pid, int output) : pid_(pid), output_(output) {}

  const pid_t pid_;
  int output_;
  std::optional<int> wait_status_;
};

// "exited with code 3", "was killed by signal 9 (Killed)".
std::string WaitStatusText(int wait_status);

}  // namespace muster

#endif  // MUSTER_CLIENT_LAUNCHER_CHILD_PROCESS_H_
