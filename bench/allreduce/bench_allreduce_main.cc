// bench-allreduce: how fast is an all-reduce, beside Open MPI and Gloo in the same run?
//
// For each number of ranks all implementations are started and kept; for each size they are
// measured by turns, several rounds, and the median of the rounds counts. Columns as nccl-tests
// prints them: algbw = bytes / time, busbw = algbw * 2 (n-1)/n. "bound" streams the bytes any
// all-reduce must send and sums nothing.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/daemon.h"
#include "bench/allreduce/muster_ranks.h"
#include "bench/allreduce/shm_bound.h"

namespace muster::bench {
namespace {

struct Settings {
  std::vector<int> ranks = {2, 4};
  uint64_t min_bytes = 1 << 10;
  uint64_t max_bytes = 64 << 20;
  int rounds = 7;
  double round_ms = 30;
  std::vector<std::string> peers = {"openmpi", "gloo"};
  std::vector<std::string> algorithms = {"auto"};
  std::vector<std::string> transports = {"inproc", "tcp"};
  std::string json;
  std::string serve;  // internal: the part of a rank group
  MusterOptions muster;
};

// A rank group in child processes.
class Group {
 public:
  Group(std::string implementation, std::string transport, std::vector<std::string> variants,
        const std::vector<std::string>& command)
      : implementation(std::move(implementation)),
        transport(std::move(transport)),
        variants(std::move(variants)) {
    int in[2], out[2];
    if (pipe(in) != 0 || pipe(out) != 0) std::exit(1);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(in[0], 0);
      dup2(out[1], 1);
      for (int fd : {in[0], in[1], out[0], out[1]}) close(fd);
      // Earlier groups' pipes must not stay open here, or they would not see their input end.
      for (int fd = 3; fd < 256; ++fd) close(fd);
      std::vector<char*> arguments;
      for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
      arguments.push_back(nullptr);
      execvp(arguments[0], arguments.data());
      std::fprintf(stderr, "bench-allreduce: cannot run %s\n", arguments[0]);
      std::_Exit(127);
    }
    close(in[0]);
    close(out[1]);
    to_ = fdopen(in[1], "w");
    from_ = fdopen(out[0], "r");
  }
  ~Group() {
    std::fclose(to_);
    std::fclose(from_);
    waitpid(pid_, nullptr, 0);
  }

  double Measure(uint64_t count, int iterations, const std::string& variant, int64_t* errors) {
    std::fprintf(to_, "%llu %d %s\n", static_cast<unsigned long long>(count), iterations,
                 variant.c_str());
    std::fflush(to_);
    double microseconds = 0;
    long long wrong = 0;
    if (std::fscanf(from_, "%lf %lld", &microseconds, &wrong) != 2) {
      std::fprintf(stderr, "bench-allreduce: %s over %s died\n", implementation.c_str(),
                   transport.c_str());
      std::exit(1);
    }
    *errors += wrong;
    return microseconds;
  }

  const std::string implementation;
  const std::string transport;
  const std::vector<std::string> variants;

 private:
  pid_t pid_ = -1;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
};

std::string OwnPath() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  return std::string(path, static_cast<size_t>(std::max<ssize_t>(length, 0)));
}

std::vector<std::unique_ptr<Group>> StartGroups(const Settings& settings, int ranks) {
  const std::string self = OwnPath();
  const std::string folder = self.substr(0, self.rfind('/') + 1);
  const std::string n = std::to_string(ranks);
  std::vector<std::unique_ptr<Group>> groups;
  const auto own = [&](const char* implementation, const char* transport, const char* serve,
                       const std::vector<std::string>& variants) {
    groups.push_back(std::make_unique<Group>(
        implementation, transport, variants,
        std::vector<std::string>{self,
                                 "--serve",
                                 serve,
                                 "--ranks",
                                 n,
                                 "--channels",
                                 std::to_string(settings.muster.channels),
                                 "--socket-buffer",
                                 std::to_string(settings.muster.socket_buffer_bytes),
                                 "--segment",
                                 std::to_string(settings.muster.segment_bytes),
                                 "--direct-limit",
                                 std::to_string(settings.muster.direct_limit_bytes),
                                 "--spin-us",
                                 std::to_string(settings.muster.spin_us),
                                 "--small-limit",
                                 std::to_string(settings.muster.small_limit_bytes),
                                 "--provider",
                                 settings.muster.provider,
                                 "--packet",
                                 std::to_string(settings.muster.packet_bytes)}));
  };
  for (const std::string& transport : settings.transports) {
    if (transport == "shm") {
      own("muster", "shm", "shm", {"auto"});
      own("muster", "shm", "shm-unregistered", {"unregistered"});
      own("bound", "shm", "shm-bound", {"one-pass"});
    } else {
      own("muster", transport.c_str(), transport.c_str(), settings.algorithms);
    }
  }
  const bool shm = std::find(settings.transports.begin(), settings.transports.end(), "shm") !=
                   settings.transports.end();
  const bool tcp = std::find(settings.transports.begin(), settings.transports.end(), "tcp") !=
                   settings.transports.end();
  if (tcp) own("bound", "tcp", "bound", {"stream"});
  for (const std::string& peer : settings.peers) {
    const std::string program = folder + "bench-allreduce-" + peer;
    if (access(program.c_str(), X_OK) != 0) {
      std::fprintf(stderr,
                   "bench-allreduce: %s is not there (its library was not found when this was "
                   "configured; packages: deploy/packages/bench.txt); going on without it\n",
                   program.c_str());
      continue;
    }
    if (peer == "openmpi" && shm) {
      groups.push_back(std::make_unique<Group>(
          peer, "shm", std::vector<std::string>{"tuned"},
          std::vector<std::string>{"mpirun", "--allow-run-as-root", "--oversubscribe", "--mca",
                                   "btl", "vader,self", "--mca", "pml", "ob1", "-x",
                                   "GLIBC_TUNABLES", "-n", n, program}));
    }
    if (peer == "openmpi") {
      if (!tcp && shm) continue;
      // Two mpirun that start at once collide over their session directory.
      int64_t errors = 0;
      if (shm) groups.back()->Measure(1, 1, "tuned", &errors);
      groups.push_back(std::make_unique<Group>(
          peer, "tcp", std::vector<std::string>{"tuned"},
          std::vector<std::string>{"mpirun", "--allow-run-as-root", "--oversubscribe", "--mca",
                                   "btl", "tcp,self", "--mca", "pml", "ob1", "--mca",
                                   "btl_tcp_if_include", "lo", "-x", "GLIBC_TUNABLES", "-n", n,
                                   program}));
    } else {
      groups.push_back(std::make_unique<Group>(peer, "tcp",
                                               std::vector<std::string>{"ring", "bcube"},
                                               std::vector<std::string>{program, n}));
    }
  }
  return groups;
}

int Run(const Settings& settings) {
  // Opened before anything is measured for it.
  std::ofstream file;
  if (!settings.json.empty()) {
    file.open(settings.json);
    if (!file) {
      std::fprintf(stderr, "bench-allreduce: --json: cannot write %s\n", settings.json.c_str());
      return 2;
    }
  }
  // Fresh pages are expensive on virtual machines; everybody keeps theirs.
  setenv("GLIBC_TUNABLES",
         "glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=8589934592", 1);
  signal(SIGPIPE, SIG_IGN);
  nlohmann::json rows = nlohmann::json::array();
  int64_t all_errors = 0;
  for (int ranks : settings.ranks) {
    std::vector<std::unique_ptr<Group>> groups = StartGroups(settings, ranks);
    std::printf("# %d ranks, f32 sum, median of %d rounds\n", ranks, settings.rounds);
    std::printf("#%11s %12s %6s %-9s %-10s %-7s %11s %9s %9s %7s\n", "size(B)", "count", "type",
                "impl", "transport", "algo", "time(us)", "algbw", "busbw", "#wrong");
    for (uint64_t bytes = settings.min_bytes; bytes <= settings.max_bytes; bytes *= 4) {
      struct Line {
        Group* group;
        std::string variant;
        int iterations = 1;
        std::vector<double> times;
        int64_t errors = 0;
      };
      const uint64_t count = bytes / sizeof(float);
      std::vector<Line> lines;
      for (const auto& group : groups) {
        for (const std::string& variant : group->variants) {
          lines.push_back({group.get(), variant, 1, {}, 0});
          Line& line = lines.back();
          // Also warms up buffers and connections.
          const double first = group->Measure(count, 3, variant, &line.errors);
          line.iterations = std::clamp(static_cast<int>(settings.round_ms * 1000 / first), 1, 2000);
        }
      }
      for (int round = 0; round < settings.rounds; ++round) {
        for (Line& line : lines) {
          line.times.push_back(
              line.group->Measure(count, line.iterations, line.variant, &line.errors));
        }
      }
      for (Line& line : lines) {
        std::sort(line.times.begin(), line.times.end());
        const double time_us = line.times[line.times.size() / 2];
        const double algbw = static_cast<double>(bytes) / time_us / 1e3;
        const double busbw = algbw * 2 * (ranks - 1) / ranks;
        all_errors += line.errors;
        std::printf("%12llu %12llu %6s %-9s %-10s %-7s %11.1f %9.3f %9.3f %7lld\n",
                    static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(count),
                    "f32", line.group->implementation.c_str(), line.group->transport.c_str(),
                    line.variant.c_str(), time_us, algbw, busbw,
                    static_cast<long long>(line.errors));
        rows.push_back({{"implementation", line.group->implementation},
                        {"transport", line.group->transport},
                        {"algorithm", line.variant},
                        {"ranks", ranks},
                        {"dtype", "f32"},
                        {"bytes", bytes},
                        {"time_us", time_us},
                        {"busbw_gbps", busbw},
                        {"errors", line.errors}});
      }
      std::fflush(stdout);
    }
  }
  if (!settings.json.empty()) {
    file << rows.dump(1) << "\n";
    if (!file.flush()) {
      std::fprintf(stderr, "bench-allreduce: cannot write %s\n", settings.json.c_str());
      return 1;
    }
  }
  return all_errors == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  TuneProcess();
  Settings settings;
  CLI::App app(
      "Measures all-reduce of f32 vectors, beside Open MPI and Gloo where they are installed.");
  app.add_option("--ranks", settings.ranks, "Numbers of ranks, such as 2,4")
      ->delimiter(',')
      ->check(CLI::Range(2, 64));
  app.add_option("--min-bytes,--min", settings.min_bytes, "Smallest size, such as 1KiB")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--max-bytes,--max", settings.max_bytes, "Largest size; sizes grow by 4")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--transport", settings.transports, "Muster over: of inproc, shm, tcp, ofi")
      ->delimiter(',')
      ->check(CLI::IsMember({"inproc", "shm", "tcp", "ofi"}));
  app.add_option("--provider", settings.muster.provider,
                 "libfabric provider of --transport ofi: auto, efa, tcp, net, tcp;ofi_rxm, shm");
  app.add_option("--packet", settings.muster.packet_bytes,
                 "Muster over ofi: bytes of a packet, 0 = default");
  app.add_option("--rounds", settings.rounds, "Rounds per size; the median counts")
      ->check(CLI::Range(1, 1000));
  app.add_option("--round-ms", settings.round_ms, "Time of a round, in ms")
      ->check(CLI::Range(0.1, 60000.0));
  app.add_option("--peers", settings.peers, "Of openmpi, gloo; none for neither")
      ->delimiter(',')
      ->check(CLI::IsMember({"openmpi", "gloo", "none"}));
  app.add_option("--algorithms", settings.algorithms, "Of auto, ring, direct")
      ->delimiter(',')
      ->check(CLI::IsMember({"auto", "ring", "direct"}));
  app.add_option("--json", settings.json, "Writes an array of flat objects there");
  app.add_option("--channels", settings.muster.channels, "Muster: TCP connections per peer");
  app.add_option("--socket-buffer", settings.muster.socket_buffer_bytes,
                 "Muster: kernel buffers, 0 = auto");
  app.add_option("--segment", settings.muster.segment_bytes,
                 "Muster: bytes of a segment, 0 = default");
  app.add_option("--direct-limit", settings.muster.direct_limit_bytes,
                 "Muster: direct up to here, -1 = default");
  app.add_option("--small-limit", settings.muster.small_limit_bytes,
                 "Muster over shm: each rank reduces all up to here, -1 = default");
  app.add_option("--spin-us", settings.muster.spin_us,
                 "Muster: spin before blocking, -1 = default");
  app.add_option("--serve", settings.serve)->group("");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  std::erase(settings.peers, "none");
  if (settings.min_bytes < sizeof(float) || settings.max_bytes < settings.min_bytes) {
    std::fprintf(stderr,
                 "bench-allreduce: --min-bytes must be 4 or more and not above --max-bytes\n");
    return 2;
  }
  if (settings.serve == "tcp") return ServeMusterTcp(settings.ranks[0], settings.muster);
  if (settings.serve == "ofi") return ServeMusterOfi(settings.ranks[0], settings.muster);
  if (settings.serve == "shm") return ServeMusterShm(settings.ranks[0], true, settings.muster);
  if (settings.serve == "shm-unregistered") {
    return ServeMusterShm(settings.ranks[0], false, settings.muster);
  }
  if (settings.serve == "shm-bound") return ServeShmBound(settings.ranks[0]);
  if (settings.serve == "inproc") return ServeMusterInProcess(settings.ranks[0], settings.muster);
  if (settings.serve == "bound") return ServeTcpBound(settings.ranks[0]);
  return Run(settings);
}

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) { return muster::bench::Main(argc, argv); }
