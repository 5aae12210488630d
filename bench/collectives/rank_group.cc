#include "bench/collectives/rank_group.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>
#include <thread>

#include "bench/collectives/reference.h"

namespace muster::bench {
namespace {

// What a rank tells rank 0.
struct Outcome {
  double microseconds = 0;
  int64_t wrong = 0;
};

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "bench: %s\n", what.c_str());
  std::exit(1);
}

}  // namespace

struct Exchange::Slot {
  std::atomic<int> ready;
  char text[124];
};

Exchange::Exchange(int ranks) : ranks_(ranks) {
  void* memory = mmap(nullptr, sizeof(Slot) * static_cast<size_t>(ranks), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) Die("mmap failed");
  slots_ = static_cast<Slot*>(memory);
}

std::vector<std::string> Exchange::AllToAll(int rank, const std::string& text) {
  std::snprintf(slots_[rank].text, sizeof(slots_[rank].text), "%s", text.c_str());
  slots_[rank].ready = 1;
  std::vector<std::string> all;
  for (int r = 0; r < ranks_; ++r) {
    for (int waited_ms = 0; slots_[r].ready == 0; ++waited_ms) {
      if (waited_ms > 20000) Die("rank " + std::to_string(r) + " did not start");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    all.emplace_back(slots_[r].text);
  }
  return all;
}

void BenchRank::Free::operator()(void* memory) const { std::free(memory); }

void* BenchRank::Allocate(size_t bytes) {
  buffers_.emplace_back(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
  if (buffers_.back() == nullptr) Die("out of memory");
  return buffers_.back().get();
}

double TimeTrial(BenchRank& bench_rank, TrialBuffers& buffers, int rank, int ranks,
                 const Trial& trial, int64_t* wrong) {
  if (!bench_rank.Supports(trial)) return -1;
  const size_t element = SizeOf(trial.type);
  const size_t bytes = std::max<size_t>(64, WholeCount(trial, ranks) * element);
  if (buffers.bytes < bytes) {
    buffers = {bytes, bench_rank.Allocate(bytes), bench_rank.Allocate(bytes)};
  }
  auto* input = static_cast<std::byte*>(buffers.first);
  auto* output = static_cast<std::byte*>(buffers.second);
  if (trial.in_place) {
    output = input + OutputOffsetInPlace(trial, rank) * element;
    input += InputOffsetInPlace(trial, rank) * element;
  }
  if (InputCount(trial, rank, ranks) == 0) input = nullptr;
  if (OutputCount(trial, rank, ranks) == 0) output = nullptr;
  const auto prepare = [&] {
    if (output != nullptr) std::memset(output, 0xff, OutputCount(trial, rank, ranks) * element);
    if (input != nullptr) FillInput(trial, rank, ranks, input);
  };
  const auto check = [&] {
    if (bench_rank.Computes() && output != nullptr) {
      *wrong += CountWrong(trial, rank, ranks, output);
    }
  };
  prepare();
  bench_rank.Run(trial, input, output);
  check();
  bench_rank.Run(trial, input, output);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < trial.iterations; ++i) bench_rank.Run(trial, input, output);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  // Reductions in place have eaten their input.
  if (!(trial.in_place && Reduces(trial.kind))) check();
  return took.count() / trial.iterations;
}

int ServeRanks(int ranks, bool processes, const BenchRankFactory& factory) {
  Exchange exchange(ranks);
  std::vector<std::array<int, 2>> pipes(static_cast<size_t>(ranks));
  for (auto& ends : pipes) {
    if (pipe(ends.data()) != 0) Die("pipe failed");
  }
  int results[2];
  if (pipe(results) != 0) Die("pipe failed");
  const auto serve = [&](int rank) {
    const std::unique_ptr<BenchRank> bench_rank = factory(rank, exchange);
    TrialBuffers buffers;
    while (true) {
      Trial trial;
      if (rank == 0) {
        std::string line;
        std::getline(std::cin, line);
        const std::optional<Trial> parsed = ParseTrial(line);
        if (!parsed.has_value() && !line.empty()) Die("no command: " + line);
        if (parsed.has_value()) trial = *parsed;
        for (int r = 1; r < ranks; ++r) {
          if (write(pipes[r][1], &trial, sizeof(trial)) != sizeof(trial)) Die("a rank is gone");
        }
      } else if (read(pipes[rank][0], &trial, sizeof(trial)) != sizeof(trial)) {
        return;
      }
      if (trial.iterations == 0) return;
      Outcome outcome;
      outcome.microseconds = TimeTrial(*bench_rank, buffers, rank, ranks, trial, &outcome.wrong);
      if (rank != 0) {
        if (write(results[1], &outcome, sizeof(outcome)) != sizeof(outcome)) Die("rank 0 is gone");
        continue;
      }
      for (int r = 1; r < ranks; ++r) {
        Outcome theirs;
        if (read(results[0], &theirs, sizeof(theirs)) != sizeof(theirs)) Die("a rank is gone");
        outcome.microseconds = std::max(outcome.microseconds, theirs.microseconds);
        outcome.wrong += theirs.wrong;
      }
      std::printf("%.3f %lld\n", outcome.microseconds, static_cast<long long>(outcome.wrong));
      std::fflush(stdout);
    }
  };
  if (!processes) {
    std::vector<std::thread> threads;
    for (int r = 1; r < ranks; ++r) threads.emplace_back(serve, r);
    serve(0);
    for (std::thread& thread : threads) thread.join();
    return 0;
  }
  std::vector<pid_t> children;
  for (int r = 1; r < ranks; ++r) {
    const pid_t child = fork();
    if (child < 0) Die("fork failed");
    if (child == 0) {
      close(pipes[r][1]);
      for (int other = 0; other < ranks; ++other) {
        if (other != r) close(pipes[other][1]);
      }
      serve(r);
      std::_Exit(0);
    }
    children.push_back(child);
  }
  serve(0);
  for (pid_t child : children) waitpid(child, nullptr, 0);
  return 0;
}

}  // namespace muster::bench
