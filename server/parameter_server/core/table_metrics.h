// What a table counts of itself. Counters only rise; a shell turns them into metrics. Plain values.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_CORE_TABLE_METRICS_H_
#define MUSTER_SERVER_PARAMETER_SERVER_CORE_TABLE_METRICS_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace muster {

// Observations of whole numbers from 0 on.
struct StalenessHistogram {
  // Bucket i counts those of at most kBounds[i] (and above the bound before), the last the rest.
  static constexpr std::array<int64_t, 9> kBounds = {0, 1, 2, 4, 8, 16, 32, 64, 128};
  std::array<int64_t, kBounds.size() + 1> counts = {};
  int64_t count = 0;
  int64_t sum = 0;
  int64_t largest = 0;

  void Observe(int64_t value) {
    size_t bucket = 0;
    while (bucket < kBounds.size() && value > kBounds[bucket]) ++bucket;
    ++counts[bucket];
    ++count;
    sum += value;
    if (value > largest) largest = value;
  }
};

struct TableMetrics {
  // Chunks of pushes, by what became of them, and the bytes of those added as they came.
  int64_t pushes_added = 0;
  int64_t pushes_duplicate = 0;
  int64_t pushes_refused = 0;  // errors, fenced ones included
  int64_t pushes_fenced = 0;   // of these: by an incarnation that is no longer attached
  int64_t push_waits = 0;
  int64_t pushed_bytes = 0;
  int64_t pulls = 0;
  int64_t pull_waits = 0;
  int64_t pulled_bytes = 0;
  int64_t rows_merged = 0;  // of sparse pushes: rows beyond the first of the same id
  // Whole steps (synchronous), whole pushes (else).
  int64_t updates = 0;
  int64_t updates_skipped = 0;  // not finite
  int64_t updates_clipped = 0;
  // Not synchronous: how many pushes were applied between a contributor's last pull and its push.
  StalenessHistogram staleness;
  // Gauges. The four of bytes are all that the table has of the account.
  int64_t table_bytes = 0;    // parameters, optimizer state, sums
  int64_t held_bytes = 0;     // pushes that came before their turn, or are not yet complete
  int64_t retired_bytes = 0;  // older versions that somebody still reads
  int64_t idle_bytes = 0;     // kept for reuse, or reserved
  int64_t pins = 0;
  int64_t rows = 0;  // of a sparse table that were pushed
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_CORE_TABLE_METRICS_H_
