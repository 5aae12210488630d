// bench-scaling: all-reduce between hosts whose wires, not this machine's cores, are the limit.
//
// Makes hosts out of network namespaces with a limited rate each (host_lab.h), runs Muster's ranks
// in them over TCP, and compares the paths with what the wires allow: of n bytes every host must
// send and receive 2 (p-1)/p n, whatever the algorithm; where hosts are added as parameter servers
// the bound is what the busiest wire must carry (server_step.h). Results are checked.
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/daemon.h"
#include "bench/collectives/rank_group.h"
#include "bench/scaling/host_lab.h"
#include "bench/scaling/server_step.h"
#include "collectives/engine/communicator.h"
#include "collectives/transport/shm/host_mesh.h"
#include "collectives/transport/tcp_transport.h"

namespace muster::bench {
namespace {

struct Path {
  std::string name;
  Algorithm algorithm = Algorithm::kRing;
  int ranks_per_host = 1;
  // Hosts beside those of the ranks; with some the all-reduce is a push and a pull.
  int servers = 0;
  bool workers_own = false;  // as in ServerLayout
};

ServerLayout LayoutOf(const Path& path, int hosts) {
  return {.workers = hosts * path.ranks_per_host,
          .servers = path.servers,
          .workers_own = path.workers_own,
          .workers_per_host = path.ranks_per_host,
          .hierarchical = path.algorithm == Algorithm::kHierarchical};
}

// One parameter server is the star; a shard of it on each worker the direct exchange.
const std::vector<Path>& Paths() {
  static const auto& paths = *new std::vector<Path>{{"star", Algorithm::kStar, 1},
                                                    {"sharded", Algorithm::kDirect, 1},
                                                    {"ring", Algorithm::kRing, 1},
                                                    {"hierarchical", Algorithm::kHierarchical, 2}};
  return paths;
}

struct Options {
  std::vector<int> hosts = {2, 4, 8};
  std::vector<int> servers = {1, 2, 4};
  std::vector<std::string> paths;  // by name; none: all
  int rate_mbit = 200;
  int64_t bytes = 16 << 20;
  int rounds = 3;
  int iterations = 3;
  int mtu = 9000;
  std::string congestion_control = "cubic";
  std::string json;
};

[[noreturn]] void Die(const absl::Status& status) {
  std::fprintf(stderr, "bench-scaling: %s\n", std::string(status.message()).c_str());
  std::exit(1);
}

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (!value.ok()) Die(value.status());
  return *std::move(value);
}

// Servers alone, then with parts on the workers, then alone with two workers on each host, flat and
// inside the hosts first, for each number of servers up to that of hosts.
std::vector<Path> AllPaths(const Options& options, int hosts) {
  std::vector<Path> paths = Paths();
  for (const bool workers_own : {false, true}) {
    for (const int servers : options.servers) {
      if (servers > hosts) continue;
      paths.push_back({absl::StrCat(workers_own ? "mixed+" : "servers+", servers),
                       Algorithm::kDirect, 1, servers, workers_own});
    }
  }
  for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kHierarchical}) {
    const char* const name = algorithm == Algorithm::kDirect ? "pairs+" : "pairs-as-one+";
    for (const int servers : options.servers) {
      if (servers <= hosts) paths.push_back({absl::StrCat(name, servers), algorithm, 2, servers});
    }
  }
  return paths;
}

// Those of them that are asked for.
std::vector<Path> PathsFor(const Options& options, int hosts) {
  std::vector<Path> paths = AllPaths(options, hosts);
  std::erase_if(paths, [&options](const Path& path) {
    return !options.paths.empty() &&
           std::find(options.paths.begin(), options.paths.end(), path.name) == options.paths.end();
  });
  return paths;
}

// INVALID_ARGUMENT: a path is asked for that there is with none of the numbers of hosts.
absl::Status CheckPaths(const Options& options) {
  std::vector<std::string> names;
  for (const int hosts : options.hosts) {
    for (const Path& path : AllPaths(options, hosts)) {
      if (std::find(names.begin(), names.end(), path.name) == names.end()) {
        names.push_back(path.name);
      }
    }
  }
  for (const std::string& name : options.paths) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--paths: expected some of ", absl::StrJoin(names, ", "),
                     " with these --hosts and --servers, got ", name));
  }
  return absl::OkStatus();
}

// A rank's end of a mesh over the wires; ranks tell each other their addresses by `exchange`.
std::unique_ptr<Communicator> Connect(const HostLab& lab, const Path& path, int hosts, int rank,
                                      Exchange& exchange, std::unique_ptr<TcpListener>* listener) {
  const int ranks = hosts * path.ranks_per_host;  // the others are servers, each on its own host
  const auto host_of = [&](int r) {
    return r < ranks ? r / path.ranks_per_host : hosts + r - ranks;
  };
  const int host = host_of(rank);
  if (const absl::Status status = lab.Enter(host); !status.ok()) Die(status);
  TcpListenerOptions listening;
  listening.bind = lab.Address(host);
  *listener = OrDie(TcpListener::Create(listening));
  MeshSpec spec;
  spec.token = "bench";
  spec.epoch = 1;
  spec.rank = rank;
  CommunicatorOptions options;
  options.default_timeout = absl::Minutes(5);
  for (const std::string& address : exchange.AllToAll(rank, (*listener)->address())) {
    options.hosts.push_back(host_of(static_cast<int>(spec.members.size())));
    spec.members.push_back({.incarnation = Incarnation{spec.members.size() + 1},
                            .address = address,
                            .host = absl::StrCat("host-", options.hosts.back())});
  }
  // Ranks of one host share memory, as they would without the wires.
  HostMesh mesh =
      OrDie(ConnectHostMesh(HostMeshKind::kBest, **listener, std::move(spec),
                            OrDie(SharedArena::Create()), absl::Now() + absl::Seconds(30)));
  return OrDie(Communicator::Create(std::move(mesh.transport), options));
}

class TcpRank : public BenchRank {
 public:
  TcpRank(const HostLab& lab, const Path& path, int hosts, int rank, Exchange& exchange)
      : algorithm_(path.algorithm),
        communicator_(Connect(lab, path, hosts, rank, exchange, &listener_)) {}

  bool Supports(const Trial& trial) const override {
    return trial.kind == Kind::kAllReduce && trial.type == ElementType::kF32 &&
           trial.redop == Redop::kSum;
  }
  void Run(const Trial& trial, const void* input, void* output) override {
    CollectiveOptions options;
    options.caller_waits = true;
    options.algorithm = algorithm_;
    const absl::Status status = communicator_
                                    ->AllReduce(input, output, static_cast<int64_t>(trial.count),
                                                DType::kF32, ReduceOp::kSum, options)
                                    .Wait();
    if (!status.ok()) Die(status);
  }

 private:
  const Algorithm algorithm_;
  std::unique_ptr<TcpListener> listener_;
  std::unique_ptr<Communicator> communicator_;
};

// A worker of parameter servers.
class WorkerRank : public BenchRank {
 public:
  WorkerRank(const HostLab& lab, const Path& path, int hosts, int64_t count, int rank,
             Exchange& everyone)
      : communicator_(Connect(lab, path, hosts, rank, everyone, &listener_)),
        step_(*communicator_, LayoutOf(path, hosts), count) {}

  bool Supports(const Trial& trial) const override {
    return trial.kind == Kind::kAllReduce && trial.type == ElementType::kF32 &&
           trial.redop == Redop::kSum;
  }
  void Run(const Trial& trial, const void* input, void* output) override {
    const absl::Status status =
        step_.Run(static_cast<const float*>(input), static_cast<float*>(output));
    if (!status.ok()) Die(status);
  }

 private:
  std::unique_ptr<TcpListener> listener_;
  std::unique_ptr<Communicator> communicator_;
  ServerStep step_;
};

// Serves until the workers leave. In a process of its own.
[[noreturn]] void Serve(const HostLab& lab, const Path& path, int hosts, int64_t count, int rank,
                        Exchange& everyone) {
  std::unique_ptr<TcpListener> listener;
  const std::unique_ptr<Communicator> communicator =
      Connect(lab, path, hosts, rank, everyone, &listener);
  ServerStep step(*communicator, LayoutOf(path, hosts), count);
  absl::Status status;
  while (status.ok()) status = step.Run(nullptr, nullptr);
  if (!absl::IsUnavailable(status)) Die(status);
  std::_Exit(0);
}

// All ranks of a path, in processes of their own; returns the exit code.
int ServePath(const HostLab& lab, const Path& path, int hosts, int64_t count) {
  const int ranks = hosts * path.ranks_per_host;
  if (path.servers == 0) {
    return ServeRanks(ranks, /*processes=*/true, [&](int rank, Exchange& exchange) {
      return std::make_unique<TcpRank>(lab, path, hosts, rank, exchange);
    });
  }
  Exchange everyone(ranks + path.servers);
  std::vector<pid_t> servers;
  for (int i = 0; i < path.servers; ++i) {
    servers.push_back(fork());
    if (servers.back() < 0) Die(absl::InternalError("fork failed"));
    if (servers.back() == 0) Serve(lab, path, hosts, count, ranks + i, everyone);
  }
  int code = ServeRanks(ranks, /*processes=*/true, [&](int rank, Exchange&) {
    return std::make_unique<WorkerRank>(lab, path, hosts, count, rank, everyone);
  });
  for (const pid_t server : servers) {
    int status = 0;
    waitpid(server, &status, 0);
    if (status != 0) code = 1;  // it has said why
  }
  return code;
}

struct Result {
  double time_us = 0;  // median
  int64_t errors = 0;
};

// The ranks of one path, in a child with pipes for its input and output, as rank_group.h has it.
Result Measure(const HostLab& lab, const Path& path, const Options& options, int hosts) {
  int to[2], from[2];
  if (pipe(to) != 0 || pipe(from) != 0) Die(absl::InternalError("pipe failed"));
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) Die(absl::InternalError("fork failed"));
  if (child == 0) {
    dup2(to[0], STDIN_FILENO);
    dup2(from[1], STDOUT_FILENO);
    for (int fd : {to[0], to[1], from[0], from[1]}) close(fd);
    std::_Exit(ServePath(lab, path, hosts, options.bytes / 4));
  }
  close(to[0]);
  close(from[1]);
  FILE* commands = fdopen(to[1], "w");
  FILE* answers = fdopen(from[0], "r");
  Result result;
  std::vector<double> times;
  Trial trial;
  trial.count = static_cast<uint64_t>(options.bytes / 4);
  trial.iterations = options.iterations;
  for (int round = 0; round < options.rounds; ++round) {
    std::fprintf(commands, "%s\n", Format(trial).c_str());
    std::fflush(commands);
    double time_us = 0;
    long long errors = 0;
    if (std::fscanf(answers, "%lf %lld", &time_us, &errors) != 2) {
      Die(absl::InternalError(absl::StrCat("the ranks of ", path.name, " ended early")));
    }
    times.push_back(time_us);
    result.errors += errors;
  }
  std::fclose(commands);
  std::fclose(answers);
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) Die(absl::InternalError(absl::StrCat("a rank of ", path.name, " failed")));
  std::sort(times.begin(), times.end());
  result.time_us = times[times.size() / 2];
  return result;
}

// In a child of its own, since whoever makes a lab has left the machine's network.
nlohmann::json MeasureHosts(const Options& options, int hosts) {
  const std::vector<Path> paths = PathsFor(options, hosts);
  int most_servers = 0;
  for (const Path& path : paths) most_servers = std::max(most_servers, path.servers);
  const std::unique_ptr<HostLab> lab =
      OrDie(HostLab::Create({.hosts = hosts + most_servers,
                             .rate_mbit = options.rate_mbit,
                             .mtu = options.mtu,
                             .congestion_control = options.congestion_control}));
  nlohmann::json rows = nlohmann::json::array();
  const double vector_us = static_cast<double>(options.bytes) * 8 / options.rate_mbit;
  for (const Path& path : paths) {
    const double load =
        path.servers == 0 ? 2.0 * (hosts - 1) / hosts : WireLoad(LayoutOf(path, hosts));
    const double bound_us = load * vector_us;
    const Result result = Measure(*lab, path, options, hosts);
    const double ratio = result.time_us / bound_us;
    std::printf("%-14s %6d %6d %14.0f %14.0f %8.3f %8lld\n", path.name.c_str(), hosts,
                hosts * path.ranks_per_host, result.time_us, bound_us, ratio,
                static_cast<long long>(result.errors));
    std::fflush(stdout);
    rows.push_back({{"path", path.name},
                    {"hosts", hosts},
                    {"ranks", hosts * path.ranks_per_host},
                    {"servers", path.servers},
                    {"bytes", options.bytes},
                    {"rate_mbit", options.rate_mbit},
                    {"congestion_control", options.congestion_control},
                    {"time_us", result.time_us},
                    {"bound_us", bound_us},
                    {"ratio", ratio},
                    {"errors", result.errors}});
  }
  return rows;
}

int Run(const Options& options, std::ofstream* json) {
  std::printf(
      "%lld bytes of f32, every host with %d Mbit/s in each direction, TCP with %s; bound: 2 "
      "(p-1)/p of the bytes at that rate; with N servers beside them (servers+N, mixed+N; with two "
      "workers on each host pairs+N and, inside the hosts first, pairs-as-one+N) what the busiest "
      "wire must carry if each host pushes and pulls once\n\n",
      static_cast<long long>(options.bytes), options.rate_mbit, options.congestion_control.c_str());
  std::printf("%-14s %6s %6s %14s %14s %8s %8s\n", "path", "hosts", "ranks", "time (us)",
              "bound (us)", "ratio", "errors");
  std::fflush(stdout);
  nlohmann::json rows = nlohmann::json::array();
  bool wrong = false;
  for (int hosts : options.hosts) {
    int results[2];
    if (pipe(results) != 0) Die(absl::InternalError("pipe failed"));
    const pid_t child = fork();
    if (child < 0) Die(absl::InternalError("fork failed"));
    if (child == 0) {
      const std::string text = MeasureHosts(options, hosts).dump();
      const bool sent =
          write(results[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
      std::_Exit(EndOutput("bench-scaling", sent ? 0 : 1));
    }
    close(results[1]);
    std::string text;
    char piece[4096];
    for (ssize_t n; (n = read(results[0], piece, sizeof(piece))) > 0;) {
      text.append(piece, static_cast<size_t>(n));
    }
    close(results[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) return 1;  // it has said why
    for (nlohmann::json& row : nlohmann::json::parse(text)) {
      wrong = wrong || row["errors"] != 0;
      rows.push_back(std::move(row));
    }
  }
  if (json != nullptr) {
    *json << rows.dump(1) << std::endl;
    if (!*json) Die(absl::InternalError(absl::StrCat("--json ", options.json, ": cannot write")));
  }
  if (wrong) std::fprintf(stderr, "bench-scaling: there were wrong values\n");
  return wrong ? 1 : 0;
}

int Main(int argc, char** argv) {
  CLI::App app("All-reduce between hosts with rate-limited wires, made of network namespaces.",
               "bench-scaling");
  Options options;
  app.add_option("--hosts", options.hosts, "Numbers of hosts, such as 2,4,8")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(2, 64));
  app.add_option("--servers", options.servers,
                 "Numbers of hosts to add as parameter servers, such as 1,2,4")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--paths", options.paths, "Only these, such as ring,servers+2")->delimiter(',');
  app.add_option("--rate-mbit", options.rate_mbit, "Of each host's wire, in each direction")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  app.add_option("--bytes", options.bytes, "Of f32 values")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{4}, int64_t{1} << 32));
  app.add_option("--rounds", options.rounds, "The median of so many counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option(
         "--iterations", options.iterations,
         "All-reduces in a row of which a round takes the mean: ranks begin one as they have "
         "ended the one before, so a single one would count their lags, too")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--mtu", options.mtu, "Of the wires")
      ->capture_default_str()
      ->check(CLI::Range(1280, 65535));
  app.add_option("--congestion-control", options.congestion_control,
                 "Of the hosts' TCP: what Linux takes unless told otherwise, cubic, or another, "
                 "such as bbr, which shares a wire among several connections less evenly")
      ->capture_default_str();
  app.add_option("--json", options.json, "Write the rows here");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "bench-scaling: %s (see --help)\n", error.what());
    return 2;
  }
  if (const absl::Status status = CheckPaths(options); !status.ok()) {
    std::fprintf(stderr, "bench-scaling: %s\n", std::string(status.message()).c_str());
    return 2;
  }
  std::ofstream json;
  if (!options.json.empty()) {
    json.open(options.json);
    if (!json) {
      std::fprintf(stderr, "bench-scaling: --json %s: cannot write the file\n",
                   options.json.c_str());
      return 2;
    }
  }
  return Run(options, options.json.empty() ? nullptr : &json);
}

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) {
  return muster::EndOutput("bench-scaling", muster::bench::Main(argc, argv));
}
