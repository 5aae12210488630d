#include "bench/allreduce/rank_group.h"

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
#include <sstream>
#include <thread>

namespace muster::bench {
namespace {

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "bench-allreduce: %s\n", what.c_str());
  std::exit(1);
}

// A command as ranks hand it on; count 0 ends.
struct Command {
  uint64_t count = 0;
  int32_t iterations = 0;
  char variant[16] = {};
};

// Buffers kept from one command to the next, as an application would.
struct Buffers {
  size_t count = 0;
  float* input = nullptr;
  float* output = nullptr;
};

float InputOf(int rank, size_t i) {
  return static_cast<float>((i % 61) + 1) * static_cast<float>(rank + 1);
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

float* AllReducer::Allocate(size_t count) {
  buffers_.push_back(std::make_unique<float[]>(count));
  return buffers_.back().get();
}

double TimeAllReduce(AllReducer& reducer, int rank, int ranks, size_t count, int iterations,
                     const std::string& variant, int64_t* errors) {
  thread_local Buffers buffers;
  if (buffers.count < count) {
    buffers = {count, reducer.Allocate(count), reducer.Allocate(count)};
    for (size_t i = 0; i < count; ++i) buffers.input[i] = InputOf(rank, i);
  }
  const float* const input = buffers.input;
  float* const output = buffers.output;
  std::fill(output, output + count, -1.0f);
  for (int i = 0; i < 2; ++i) reducer.Run(input, output, count, variant);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < iterations; ++i) reducer.Run(input, output, count, variant);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  if (reducer.Sums()) {
    for (size_t i = 0; i < count; ++i) {
      const float expected =
          static_cast<float>((i % 61) + 1) * static_cast<float>(ranks * (ranks + 1) / 2);
      if (output[i] != expected) ++*errors;
    }
  }
  return took.count() / iterations;
}

int ServeRanks(int ranks, bool processes, const AllReducerFactory& factory) {
  Exchange exchange(ranks);
  std::vector<std::array<int, 2>> pipes(static_cast<size_t>(ranks));
  for (auto& ends : pipes) {
    if (pipe(ends.data()) != 0) Die("pipe failed");
  }
  int results[2];
  if (pipe(results) != 0) Die("pipe failed");
  const auto serve = [&](int rank) {
    const std::unique_ptr<AllReducer> reducer = factory(rank, exchange);
    while (true) {
      Command command;
      if (rank == 0) {
        std::string line;
        std::getline(std::cin, line);
        std::istringstream words(line);
        std::string variant;
        words >> command.count >> command.iterations >> variant;
        std::snprintf(command.variant, sizeof(command.variant), "%s", variant.c_str());
        for (int r = 1; r < ranks; ++r) {
          if (write(pipes[r][1], &command, sizeof(command)) != sizeof(command))
            Die("a rank is gone");
        }
      } else if (read(pipes[rank][0], &command, sizeof(command)) != sizeof(command)) {
        return;
      }
      if (command.count == 0) return;
      int64_t errors = 0;
      const double microseconds = TimeAllReduce(*reducer, rank, ranks, command.count,
                                                command.iterations, command.variant, &errors);
      if (rank != 0) {
        if (write(results[1], &errors, sizeof(errors)) != sizeof(errors)) Die("rank 0 is gone");
        continue;
      }
      for (int r = 1; r < ranks; ++r) {
        int64_t theirs = 0;
        if (read(results[0], &theirs, sizeof(theirs)) != sizeof(theirs)) Die("a rank is gone");
        errors += theirs;
      }
      std::printf("%.3f %lld\n", microseconds, static_cast<long long>(errors));
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
