// Depth-first search through every order in which the moves of a World can happen. States are
// recognised by a 128-bit digest; one that was seen is not entered again.
#ifndef MUSTER_TESTS_SIM_EXPLORER_EXPLORER_H_
#define MUSTER_TESTS_SIM_EXPLORER_EXPLORER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/sim/explorer/world.h"

namespace muster::sim {

struct Exploration {
  int64_t states = 0;              // different ones entered
  int64_t moves = 0;               // made
  size_t depth = 0;                // of the longest path
  int64_t ends = 0;                // states in which the job is over
  bool complete = false;           // every reachable state was entered
  std::string failure;             // the first bad state; empty: none
  std::vector<std::string> trace;  // the moves that lead to it
};

// Stops at the first bad state, or when `most_states` have been entered.
Exploration Explore(const Scope& scope, int64_t most_states);

}  // namespace muster::sim

#endif  // MUSTER_TESTS_SIM_EXPLORER_EXPLORER_H_
