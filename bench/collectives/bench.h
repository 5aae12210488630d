// How fast is a collective, beside other implementations in the same run?
//
// For each number of ranks all implementations are started and kept; for each collective and size
// they are measured by turns, several rounds, and the median of the rounds counts. The columns are
// nccl-tests'. Results are checked (reference.h). "bound" is what is left of an all-reduce when all
// but the work is taken away: over shm one pass over all memory between two barriers, over tcp the
// bytes that any all-reduce must send, streamed and not summed.
#ifndef MUSTER_BENCH_COLLECTIVES_BENCH_H_
#define MUSTER_BENCH_COLLECTIVES_BENCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bench/collectives/start_groups.h"
#include "bench/collectives/trial.h"

namespace muster::bench {

struct BenchSettings {
  std::vector<Kind> kinds;
  std::vector<ElementType> types = {ElementType::kF32};
  Redop redop = Redop::kSum;
  int root = 0;
  std::vector<int> ranks = {2, 4};
  uint64_t min_bytes = 1 << 10;
  uint64_t max_bytes = 64 << 20;  // sizes grow by 4
  bool in_place = true;
  int rounds = 7;
  double round_ms = 30;  // of measuring one implementation in one round
  std::string json;      // a file to write; empty: none
  GroupSettings groups;
};

// Prints a table to standard output. Returns the exit code: 0; 1 for wrong values or a failure; 2
// if the JSON file can't be written.
int Measure(const BenchSettings& settings);

// What a program measures unless told otherwise, and what it may be told: chosen at link time.
std::vector<Kind> KindsOfThisProgram();

}  // namespace muster::bench

#endif  // MUSTER_BENCH_COLLECTIVES_BENCH_H_
