#include "bench/collectives/start_groups.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "bench/collectives/shm_bound.h"
#include "bench/collectives/tcp_bound.h"
#include "collectives/schedule/schedule_request.h"

namespace muster::bench {
namespace {

using Words = std::vector<std::string>;

std::string OwnPath() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  return std::string(path, static_cast<size_t>(std::max<ssize_t>(length, 0)));
}

bool Contains(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// This program again, as a rank group.
Words OwnCommand(const std::string& serve, int ranks, const MusterOptions& options) {
  return {OwnPath(),
          "--serve",
          serve,
          "--ranks",
          std::to_string(ranks),
          "--channels",
          std::to_string(options.channels),
          "--socket-buffer",
          std::to_string(options.socket_buffer_bytes),
          "--segment",
          std::to_string(options.segment_bytes),
          "--direct-limit",
          std::to_string(options.direct_limit_bytes),
          "--spin-us",
          std::to_string(options.spin_us),
          "--small-limit",
          std::to_string(options.small_limit_bytes),
          "--provider",
          options.provider,
          "--packet",
          std::to_string(options.packet_bytes),
          "--hosts",
          std::to_string(options.hosts),
          options.tunes ? "--tune" : "--no-tune"};
}

Words MpiCommand(const Words& transport, int ranks, const std::string& program) {
  Words words = {"mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "pml", "ob1"};
  words.insert(words.end(), transport.begin(), transport.end());
  const Words rest = {"-x", "GLIBC_TUNABLES", "-n", std::to_string(ranks), program};
  words.insert(words.end(), rest.begin(), rest.end());
  return words;
}

// Where it was built; empty, with a word, where it was not.
std::string PeerProgram(const std::string& peer) {
  const std::string self = OwnPath();
  const std::string program = self.substr(0, self.rfind('/') + 1) + "bench-peer-" + peer;
  if (access(program.c_str(), X_OK) == 0) return program;
  std::fprintf(stderr,
               "bench: %s is not there (its library was not found when this was configured; "
               "packages: deploy/packages/bench.txt); going on without it\n",
               program.c_str());
  return "";
}

}  // namespace

std::vector<std::string> AlgorithmNames(const std::vector<Kind>& kinds,
                                        const std::vector<ElementType>& types, int hosts) {
  std::vector<std::string> names = {"auto"};
  const auto possible = [&](const std::string& name) {
    return std::any_of(kinds.begin(), kinds.end(), [&](Kind kind) {
      return std::any_of(types.begin(), types.end(),
                         [&](ElementType type) { return CanMeasure(kind, type, name, hosts); });
    });
  };
  for (const Collective collective : kAllCollectives) {
    for (const Algorithm algorithm : AlgorithmsOf(collective)) {
      const std::string name(Name(algorithm));
      if (!Contains(names, name) && possible(name)) names.push_back(name);
    }
  }
  return names;
}

std::vector<std::unique_ptr<ChildGroup>> StartGroups(const GroupSettings& settings, int ranks) {
  std::vector<std::unique_ptr<ChildGroup>> groups;
  const auto add = [&](const char* implementation, const std::string& transport, Words variants,
                       const Words& command) {
    groups.push_back(
        std::make_unique<ChildGroup>(implementation, transport, std::move(variants), command));
  };
  const auto own = [&](const char* serve) { return OwnCommand(serve, ranks, settings.muster); };
  const bool bound = Contains(settings.peers, "bound");
  for (const std::string& transport : settings.transports) {
    add("muster", transport, settings.algorithms, own(transport.c_str()));
    if (transport == "shm") {
      add("muster", "shm", {"unregistered"}, own("shm-unregistered"));
      if (bound) add("bound", "shm", {"one-pass"}, own("shm-bound"));
    }
  }
  const bool shm = Contains(settings.transports, "shm");
  const bool tcp = Contains(settings.transports, "tcp") || Contains(settings.transports, "shm+tcp");
  if (bound && tcp) add("bound", "tcp", {"stream"}, own("tcp-bound"));
  if (Contains(settings.peers, "openmpi")) {
    const std::string program = PeerProgram("openmpi");
    if (!program.empty() && shm) {
      add("openmpi", "shm", {"tuned"}, MpiCommand({"--mca", "btl", "vader,self"}, ranks, program));
      // Two mpirun that start at once collide over their session directory.
      Trial trial;
      trial.kind = Kind::kBarrier;
      trial.iterations = 1;
      int64_t wrong = 0;
      (void)groups.back()->Measure(trial, &wrong);
    }
    if (!program.empty() && (tcp || !shm)) {
      add("openmpi", "tcp", {"tuned"},
          MpiCommand({"--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"}, ranks,
                     program));
    }
  }
  if (Contains(settings.peers, "gloo")) {
    const std::string program = PeerProgram("gloo");
    if (!program.empty()) add("gloo", "tcp", {"ring", "bcube"}, {program, std::to_string(ranks)});
  }
  return groups;
}

int ServeGroup(const std::string& serve, int ranks, const MusterOptions& options) {
  if (serve == "shm-bound") return ServeShmBound(ranks);
  if (serve == "tcp-bound") return ServeTcpBound(ranks);
  if (serve == "shm-unregistered") return ServeMuster("shm", ranks, false, options);
  return ServeMuster(serve, ranks, /*registered=*/true, options);
}

}  // namespace muster::bench
