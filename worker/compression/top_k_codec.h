// The elements of a gradient that are largest in magnitude: of each block of elements a fixed share
// (at least one), as indices and bf16 values, little-endian; the rest counts as zero.
//
// What a code lacks, rounding included, stays with whoever codes, and is to be added to the next
// gradient: error feedback (Stich, Cordonnier and Jaggi, "Sparsified SGD with Memory", NeurIPS
// 2018, algorithm 1). Choosing by block rather than from the whole bounds the error all the same:
// what stays of a block, and so of all of them, is at most 1 - k/n of the squares (there,
// definition 2.1). And it makes the size of a message known beforehand, and balanced over those who
// sum.
//
// Of equal magnitudes the first is taken. A NaN comes before infinities and those before all else,
// so that what is not finite is always sent. Pure; thread-safe.
#ifndef MUSTER_WORKER_COMPRESSION_TOP_K_CODEC_H_
#define MUSTER_WORKER_COMPRESSION_TOP_K_CODEC_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace muster {

inline constexpr int64_t kTopKBlockElements = 1024;

// How many are sent of a block of so many elements; the fraction is in (0, 1].
int64_t TopKCountOf(int64_t elements, double fraction);
int64_t TopKBytesOf(int64_t elements, double fraction);

// `values` become what the code lacks of them. Requires: bytes.size() == TopKBytesOf(...), and no
// more than kTopKBlockElements values.
void EncodeTopK(absl::Span<float> values, double fraction, absl::Span<std::byte> bytes);

// Adds elements [first, first + sum.size()) of a coded block to `sum`, or stores them there if the
// sum `starts` with them. DATA_LOSS if the bytes are no coded block of so many elements; `sum` is
// then undefined.
absl::Status AddTopK(absl::Span<const std::byte> bytes, int64_t elements, double fraction,
                     int64_t first, bool starts, absl::Span<float> sum);

}  // namespace muster

#endif  // MUSTER_WORKER_COMPRESSION_TOP_K_CODEC_H_
