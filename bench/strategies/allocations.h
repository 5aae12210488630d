// What the program has allocated: every operator new of it is counted, as the allocator rounds it.
// Thread-safe.
#ifndef MUSTER_BENCH_STRATEGIES_ALLOCATIONS_H_
#define MUSTER_BENCH_STRATEGIES_ALLOCATIONS_H_

#include <cstdint>

namespace muster::bench {

// Bytes in use now.
int64_t AllocatedBytes();
// The most since the last call of ResetPeak.
int64_t PeakBytes();
void ResetPeak();

}  // namespace muster::bench

#endif  // MUSTER_BENCH_STRATEGIES_ALLOCATIONS_H_
