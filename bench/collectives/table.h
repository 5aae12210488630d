// Rows of measurements in nccl-tests' columns, and as JSON.
#ifndef MUSTER_BENCH_COLLECTIVES_TABLE_H_
#define MUSTER_BENCH_COLLECTIVES_TABLE_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "bench/collectives/trial.h"

namespace muster::bench {

struct Measurement {
  double time_us = 0;
  int64_t wrong = 0;
};

struct Row {
  std::string implementation;
  std::string transport;
  std::string variant;
  int ranks = 0;
  Trial trial;
  std::optional<Measurement> out_of_place;
  std::optional<Measurement> in_place;
};

// Two lines; columns of an implementation stand before nccl-tests' own.
std::string HeaderLines();
std::string Line(const Row& row);
// Flat. What was not measured is left out.
nlohmann::json ToJson(const Row& row);

}  // namespace muster::bench

#endif  // MUSTER_BENCH_COLLECTIVES_TABLE_H_
