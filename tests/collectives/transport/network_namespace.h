// A network of a test's own: what it does to interfaces and ports there, nobody else sees.
#ifndef MUSTER_TESTS_COLLECTIVES_TRANSPORT_NETWORK_NAMESPACE_H_
#define MUSTER_TESTS_COLLECTIVES_TRANSPORT_NETWORK_NAMESPACE_H_

#include <gtest/gtest.h>
#include <sched.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"

namespace muster {

// Runs `body` in a thread that has a new network namespace with loopback up; threads and processes
// that it starts are there, too. Returns why it can't, or an empty text. Needs CAP_NET_ADMIN (root)
// and the `ip` command.
inline std::string InNewNetwork(const std::function<void()>& body) {
  std::string why_not;
  std::thread thread([&] {
    if (unshare(CLONE_NEWNET) != 0) {
      why_not = absl::StrCat("no network namespace: ", std::strerror(errno),
                             "; run as root to run this test");
    } else if (std::system("ip link set lo up") != 0) {
      why_not = "the command 'ip' (package iproute2) is not there or may not set up loopback";
    } else {
      body();
    }
  });
  thread.join();
  return why_not;
}

// Whether a shell command succeeds there.
inline bool Shell(const std::string& command) { return std::system(command.c_str()) == 0; }

}  // namespace muster

#endif  // MUSTER_TESTS_COLLECTIVES_TRANSPORT_NETWORK_NAMESPACE_H_
