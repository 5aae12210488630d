// The ranks of one implementation under measurement: processes (or threads) that wait, asleep, for
// commands and time collectives.
//
// Rank 0 reads commands, a line each as trial.h has it, from standard input, and answers each with
// "MICROSECONDS WRONG": the mean time of one collective on the slowest rank (a sender may be done
// long before its receiver), and how many values of all ranks were wrong; or "-1 0" for what the
// implementation does not have. An empty or ended input ends the
// group. This is how a bench runs several implementations by turns in one run.
//
// Needs no more than the C++ library, so that peers can share it.
#ifndef MUSTER_BENCH_COLLECTIVES_RANK_GROUP_H_
#define MUSTER_BENCH_COLLECTIVES_RANK_GROUP_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/collectives/trial.h"

namespace muster::bench {

// One rank of an implementation.
class BenchRank {
 public:
  virtual ~BenchRank() = default;
  // False for what this implementation does not have. The same on all ranks.
  virtual bool Supports(const Trial& trial) const = 0;
  // The collective, once; `input` and `output` are null where this rank has none. Exits the process
  // on errors. Requires: Supports(trial).
  virtual void Run(const Trial& trial, const void* input, void* output) = 0;
  // Memory for buffers, aligned to 64 bytes, kept until the rank's end.
  virtual void* Allocate(size_t bytes);
  // False where the implementation moves bytes and computes nothing (a bound).
  virtual bool Computes() const { return true; }

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  std::vector<std::unique_ptr<void, Free>> buffers_;
};

// Memory that all ranks share, for exchanging addresses while they start.
class Exchange {
 public:
  explicit Exchange(int ranks);
  // Publishes this rank's text (under 120 bytes) and waits for everybody's.
  std::vector<std::string> AllToAll(int rank, const std::string& text);

 private:
  struct Slot;
  const int ranks_;
  Slot* slots_;
};

using BenchRankFactory = std::function<std::unique_ptr<BenchRank>(int rank, Exchange& exchange)>;

// Serves commands until the input ends; returns the exit code. With `processes` each rank is
// forked.
int ServeRanks(int ranks, bool processes, const BenchRankFactory& factory);

// One rank's buffers, kept from one trial to the next, as an application would.
struct TrialBuffers {
  size_t bytes = 0;
  void* first = nullptr;
  void* second = nullptr;
};

// Times one trial as rank `rank` of `ranks`; used by ServeRanks and by implementations that bring
// their own processes. Checks the first run, into an output of junk, and where the input is still
// there the last. Returns microseconds per collective, or -1 if it is not supported, and adds wrong
// values to *wrong.
double TimeTrial(BenchRank& bench_rank, TrialBuffers& buffers, int rank, int ranks,
                 const Trial& trial, int64_t* wrong);

}  // namespace muster::bench

#endif  // MUSTER_BENCH_COLLECTIVES_RANK_GROUP_H_
