// What the ranks put into a trial and what must come out of it, by the plainest means: sums in
// double precision of numbers chosen so that no sum of up to 64 ranks is rounded, then rounded once
// to the type. So results are compared bit for bit, in whatever order an implementation adds.
//
// Pure but for the memory given. Needs no more than the C++ library.
#ifndef MUSTER_BENCH_COLLECTIVES_REFERENCE_H_
#define MUSTER_BENCH_COLLECTIVES_REFERENCE_H_

#include <cstdint>

#include "bench/collectives/trial.h"

namespace muster::bench {

// Writes InputCount elements.
void FillInput(const Trial& trial, int rank, int ranks, void* input);

// Of OutputCount elements, those that are wrong.
int64_t CountWrong(const Trial& trial, int rank, int ranks, const void* output);

}  // namespace muster::bench

#endif  // MUSTER_BENCH_COLLECTIVES_REFERENCE_H_
