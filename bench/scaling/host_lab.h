// A network of hosts inside one machine: each host is a network namespace whose one wire has a
// limited rate in each direction, all meet at a bridge, as machines at a switch that blocks nobody.
//
// Namespaces live as long as their holder processes, which die with this one: nothing is left
// behind however it ends. Needs the rights to make namespaces (root, or user namespaces without it)
// and the programs ip and tc. Not thread-safe; make it before threads.
#ifndef MUSTER_BENCH_SCALING_HOST_LAB_H_
#define MUSTER_BENCH_SCALING_HOST_LAB_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster::bench {

struct HostLabOptions {
  int hosts = 2;
  int rate_mbit = 200;  // of each host's wire, in each direction
  int mtu = 9000;       // jumbo frames, as in data centers: of 1500 bytes headers take 4%
  // Of TCP, whatever the machine's own is, so that results of machines can be compared.
  std::string congestion_control = "cubic";
};

class HostLab {
 public:
  // Moves the calling process into a namespace of its own. PERMISSION_DENIED, NOT_FOUND or INTERNAL
  // name the step that failed and what the program said.
  static absl::StatusOr<std::unique_ptr<HostLab>> Create(const HostLabOptions& options);
  ~HostLab();

  // Of the host's wire.
  std::string Address(int host) const;
  // Moves the calling process into the host. For forked children.
  absl::Status Enter(int host) const;

 private:
  explicit HostLab(const HostLabOptions& options) : options_(options) {}
  absl::Status Build();
  absl::Status AddHost(int host);

  const HostLabOptions options_;
  std::vector<pid_t> holders_;
};

}  // namespace muster::bench

#endif  // MUSTER_BENCH_SCALING_HOST_LAB_H_
