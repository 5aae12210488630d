// Servers in processes of their own, as clients meet them.
#ifndef MUSTER_BENCH_PARAMETER_SERVER_SERVER_PROCESS_H_
#define MUSTER_BENCH_PARAMETER_SERVER_SERVER_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::bench {

// A child process; killed and awaited with the object.
class ServerProcess {
 public:
  // Runs `program` with `arguments` and "--ready-file FILE", in which it writes {"rpc_address":
  // ...} once it serves. UNAVAILABLE if it does not within ten seconds.
  static absl::StatusOr<ServerProcess> Start(const std::string& program,
                                             std::vector<std::string> arguments);
  ServerProcess(ServerProcess&& other) noexcept;
  ServerProcess& operator=(ServerProcess&&) = delete;
  ~ServerProcess();

  const std::string& address() const { return address_; }
  pid_t pid() const { return pid_; }

 private:
  ServerProcess(pid_t pid, std::string address) : pid_(pid), address_(std::move(address)) {}
  pid_t pid_ = -1;
  std::string address_;
};

// Where the program of this name lies that was built beside this one.
std::string SiblingProgram(const std::string& name);

}  // namespace muster::bench

#endif  // MUSTER_BENCH_PARAMETER_SERVER_SERVER_PROCESS_H_
