// Gradients in 8 bits: a block of elements as one f32 scale, little-endian, and a signed byte each.
//
// The scale is the largest magnitude of the block over 127, and a code the element over the scale,
// rounded to nearest, ties to even: an element is off by half a scale at most. (Dettmers, "8-Bit
// Approximations for Parallelism in Deep Learning", ICLR 2016, with linear codes; blocks as in
// Dettmers et al., "8-bit Optimizers via Block-wise Quantization", ICLR 2022, section 2.1.) A block
// with an element that is not finite comes out as NaN throughout, so that nobody takes such a step.
// Zeros stay zeros.
//
// Fixed IEEE operations, so the same bits everywhere. Pure; thread-safe.
#ifndef MUSTER_WORKER_COMPRESSION_INT8_CODEC_H_
#define MUSTER_WORKER_COMPRESSION_INT8_CODEC_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace muster {

// Scales cost 4 bytes in 260.
inline constexpr int64_t kInt8BlockElements = 256;

// Of a block of so many elements.
int64_t Int8BytesOf(int64_t elements);

// Requires: bytes.size() == Int8BytesOf(values.size()).
void EncodeInt8(absl::Span<const float> values, absl::Span<std::byte> bytes);

// Adds elements [first, first + sum.size()) of a coded block to `sum`, or stores them there if the
// sum `starts` with them. DATA_LOSS if the bytes are no coded block of so many elements; `sum` is
// then undefined.
absl::Status AddInt8(absl::Span<const std::byte> bytes, int64_t elements, int64_t first,
                     bool starts, absl::Span<float> sum);

}  // namespace muster

#endif  // MUSTER_WORKER_COMPRESSION_INT8_CODEC_H_
