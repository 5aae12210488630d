// The first value of every parameter.
//
// Element i of tensor T is a pure function of (seed, name of T, i): it depends neither on the order
// of tensors, nor on buckets, nor on who draws it, so any worker can make any part of step 0.
// Pure and thread-safe.
#ifndef MUSTER_STATE_INITIALIZE_H_
#define MUSTER_STATE_INITIALIZE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "state/layout.h"
#include "state/range.h"

namespace muster {

// Writes the whole flat space; padding becomes zero. Requires: flat.size() == padded_count().
void InitializeParameters(const Layout& layout, uint64_t seed, absl::Span<float> flat);

// The elements of `range` of the flat space: for who keeps a part. Requires: it lies in the layout,
// flat.size() == range.count.
void InitializeRange(const Layout& layout, uint64_t seed, Range range, absl::Span<float> flat);

// Elements first, first + 1, ... of one tensor. Requires: it has them.
void InitializeElements(const Tensor& tensor, uint64_t seed, int64_t first,
                        absl::Span<float> values);

// All of them. Requires: values.size() == tensor.count.
void InitializeTensor(const Tensor& tensor, uint64_t seed, absl::Span<float> values);

}  // namespace muster

#endif  // MUSTER_STATE_INITIALIZE_H_
