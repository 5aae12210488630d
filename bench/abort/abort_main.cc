// bench-abort: how long after a rank is killed, or frozen, does every other rank know?
//
// Again and again ranks in processes of their own are all within large all-reduces when one of them
// gets SIGKILL, at another moment each time; measured is the time from the signal to the end of
// each survivor's Wait(). With --signal stop it is frozen instead, which no kernel reports: then
// the operation's deadline counts, and the time is that beyond it.
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/control/transport_names.h"
#include "base/daemon.h"
#include "base/random.h"
#include "bench/collectives/muster_ranks.h"

namespace muster::bench {
namespace {

constexpr int kMaxRanks = 64;
// A survivor that needs longer hangs.
constexpr absl::Duration kPatience = absl::Seconds(40);

struct Settings {
  std::vector<std::string> transports = {"shm", "tcp", "ofi"};
  int ranks = 4;
  int64_t bytes = 64 << 20;
  int repetitions = 20;
  std::string signal = "kill";
  int timeout_ms = 0;  // of an operation; 0: 30 s, and 500 ms with --signal stop
  std::string json;
  MusterOptions muster;
};

// Memory that the ranks share with the parent, one for each repetition.
struct Board {
  struct Slot {
    std::atomic<int> rounds;  // collectives done well
    std::atomic<int64_t> began_ns;
    std::atomic<int64_t> returned_ns;
    std::atomic<int> culprit;
  };
  Slot slots[kMaxRanks];
};

int64_t MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// A rank's life, in its process. Returns the exit code.
int RunRank(const Settings& settings, const std::string& transport, int rank, Exchange& exchange,
            Board& board, bool explains) {
  MusterOptions muster = settings.muster;
  if (transport == "shm+tcp") muster.hosts = 2;
  absl::StatusOr<MusterEnd> end = JoinMesh(transport, rank, exchange, muster);
  if (!end.ok()) {
    std::fprintf(stderr, "bench-abort: rank %d: %s\n", rank, end.status().ToString().c_str());
    return 1;
  }
  if (explains && rank == 0 && !end->explanation.empty()) {
    std::fprintf(stderr, "# %s\n", end->explanation.c_str());
  }
  auto communicator = Communicator::Create(std::move(end->transport),
                                           CommunicatorOptionsOf(muster, settings.ranks));
  if (!communicator.ok()) return 1;
  const int64_t count = settings.bytes / 4;
  SharedBuffer shared;
  std::vector<float> own;
  float* data = nullptr;
  if (end->arena != nullptr) {
    auto buffer = end->arena->Allocate(settings.bytes);
    if (!buffer.ok()) return 1;
    shared = *std::move(buffer);
    data = reinterpret_cast<float*>(shared.data());
  } else {
    own.resize(static_cast<size_t>(count));
    data = own.data();
  }
  std::fill(data, data + count, 1.0f);
  CollectiveOptions options;
  options.caller_waits = true;
  options.timeout = absl::Milliseconds(settings.timeout_ms);
  Board::Slot& slot = board.slots[rank];
  while (true) {
    slot.began_ns = MonotonicNs();
    const absl::Status status =
        (*communicator)->AllReduce(data, data, count, DType::kF32, ReduceOp::kMax, options).Wait();
    if (!status.ok()) break;
    ++slot.rounds;
  }
  slot.returned_ns = MonotonicNs();
  slot.culprit = (*communicator)->failure()->culprit.value_or(-1);
  // Without destructors: the measurement is over, and a frozen peer would hold up a goodbye.
  std::_Exit(0);
}

struct Result {
  std::vector<double> times_ms;  // of each survivor of each repetition
  int named = 0;                 // survivors that blamed the right rank
  int lost = 0;                  // survivors that did not return
};

// The children `pids` are gone, or patience is at its end.
bool AwaitAll(const std::vector<pid_t>& pids, absl::Time deadline) {
  for (const pid_t pid : pids) {
    while (waitpid(pid, nullptr, WNOHANG) == 0) {
      if (absl::Now() >= deadline) return false;
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
  return true;
}

void Repeat(const Settings& settings, const std::string& transport, int repetition,
            Result& result) {
  void* const memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::exit(1);
  Board& board = *new (memory) Board{};
  Exchange exchange(settings.ranks);
  std::fflush(nullptr);
  std::vector<pid_t> pids;
  for (int rank = 0; rank < settings.ranks; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::_Exit(RunRank(settings, transport, rank, exchange, board, /*explains=*/repetition == 0));
    }
    if (pid < 0) std::exit(1);
    pids.push_back(pid);
  }
  const absl::Time deadline = absl::Now() + kPatience;
  const auto all_run = [&] {
    return std::all_of(board.slots, board.slots + settings.ranks,
                       [](const Board::Slot& slot) { return slot.rounds >= 2; });
  };
  while (!all_run()) {
    if (absl::Now() > deadline) {
      std::fprintf(stderr, "bench-abort: the ranks over %s did not start\n", transport.c_str());
      for (const pid_t pid : pids) kill(pid, SIGKILL);
      std::exit(1);
    }
    absl::SleepFor(absl::Milliseconds(1));
  }
  // Another moment of the collective each time.
  const RandomStream random(7, "bench-abort");
  absl::SleepFor(absl::Microseconds(random.Below(static_cast<uint64_t>(repetition), 30'000)));
  const int victim = repetition % settings.ranks;
  const bool stop = settings.signal == "stop";
  const int64_t signalled_ns = MonotonicNs();
  kill(pids[victim], stop ? SIGSTOP : SIGKILL);
  std::vector<pid_t> survivors = pids;
  survivors.erase(survivors.begin() + victim);
  (void)AwaitAll(survivors, absl::Now() + kPatience);
  for (const pid_t pid : pids) kill(pid, SIGKILL);
  (void)AwaitAll({pids[victim]}, absl::InfiniteFuture());
  for (int rank = 0; rank < settings.ranks; ++rank) {
    if (rank == victim) continue;
    const Board::Slot& slot = board.slots[rank];
    if (slot.returned_ns == 0) {
      ++result.lost;
      continue;
    }
    const int64_t from_ns =
        stop ? slot.began_ns + int64_t{settings.timeout_ms} * 1'000'000 : signalled_ns;
    result.times_ms.push_back(static_cast<double>(slot.returned_ns - from_ns) / 1e6);
    if (slot.culprit == victim) ++result.named;
  }
  munmap(memory, sizeof(Board));
}

int Main(int argc, char** argv) {
  TuneProcess();
  Settings settings;
  CLI::App app("Measures how soon all ranks know that one was killed, or is frozen.");
  app.add_option("--transport", settings.transports, "Of shm, tcp, shm+tcp (two hosts), grpc, ofi")
      ->delimiter(',')
      ->transform(MeshNameOf)
      ->check(CLI::IsMember({"shm", "tcp", "shm+tcp", "grpc", "ofi"}));
  app.add_option("--provider", settings.muster.provider, "libfabric provider of --transport ofi");
  app.add_option("--ranks", settings.ranks, "Ranks")->check(CLI::Range(2, kMaxRanks));
  app.add_option("--bytes", settings.bytes, "Of the vector, such as 64MiB")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(int64_t{4}, int64_t{1} << 32));
  app.add_option("--repetitions", settings.repetitions, "Ranks killed, one after the other")
      ->check(CLI::Range(1, 10000));
  app.add_option("--signal", settings.signal, "kill, or stop: frozen")
      ->check(CLI::IsMember({"kill", "stop"}));
  app.add_option("--timeout-ms", settings.timeout_ms,
                 "Deadline of an operation; 0: 30 s, or 500 ms with --signal stop")
      ->check(CLI::Range(0, 30000));
  app.add_option("--json", settings.json, "Writes an array of objects there");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (settings.timeout_ms == 0) settings.timeout_ms = settings.signal == "stop" ? 500 : 30000;
  std::ofstream file;
  if (!settings.json.empty()) {
    file.open(settings.json);
    if (!file) {
      std::fprintf(stderr, "bench-abort: --json: cannot write %s\n", settings.json.c_str());
      return 2;
    }
  }
  const bool stop = settings.signal == "stop";
  std::printf(
      "# %d ranks within all-reduces of %lld bytes, one gets SIG%s, %d times; ms until the "
      "others' Wait() is over%s\n",
      settings.ranks, static_cast<long long>(settings.bytes), stop ? "STOP" : "KILL",
      settings.repetitions, stop ? ", from their deadline on" : "");
  std::printf("#%-9s %10s %9s %9s %9s %9s %7s %6s\n", "transport", "survivors", "median", "p90",
              "max", "over 50ms", "named", "lost");
  nlohmann::json rows = nlohmann::json::array();
  int lost = 0;
  for (const std::string& transport : settings.transports) {
    Result result;
    for (int i = 0; i < settings.repetitions; ++i) Repeat(settings, transport, i, result);
    std::vector<double>& times = result.times_ms;
    std::sort(times.begin(), times.end());
    lost += result.lost;
    if (times.empty()) continue;
    const double median = times[times.size() / 2];
    const double p90 = times[times.size() * 9 / 10];
    const auto late = times.end() - std::upper_bound(times.begin(), times.end(), 50.0);
    std::printf(" %-9s %10zu %9.2f %9.2f %9.2f %9d %7d %6d\n", transport.c_str(), times.size(),
                median, p90, times.back(), static_cast<int>(late), result.named, result.lost);
    std::fflush(stdout);
    rows.push_back({{"transport", transport},
                    {"signal", settings.signal},
                    {"ranks", settings.ranks},
                    {"bytes", settings.bytes},
                    {"repetitions", settings.repetitions},
                    {"median_ms", median},
                    {"p90_ms", p90},
                    {"max_ms", times.back()},
                    {"named", result.named},
                    {"lost", result.lost},
                    {"times_ms", times}});
  }
  if (!settings.json.empty()) {
    file << rows.dump(1) << "\n";
    if (!file.flush()) {
      std::fprintf(stderr, "bench-abort: cannot write %s\n", settings.json.c_str());
      return 1;
    }
  }
  return lost == 0 ? 0 : 1;
}

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) {
  return muster::EndOutput("bench-abort", muster::bench::Main(argc, argv));
}
