// How the contributions to a gradient are coded on their way to whoever sums them: block by block,
// each in a number of bytes that its length alone decides. So a range of a gradient is the coded
// blocks that it touches, whoever is to have it: the bits of a contribution do not depend on who
// owns what, everybody knows the size of every message beforehand, and whoever gets a part of a
// block gets all of it.
//
// A value. Pure; thread-safe.
#ifndef MUSTER_WORKER_COMPRESSION_GRADIENT_CODEC_H_
#define MUSTER_WORKER_COMPRESSION_GRADIENT_CODEC_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/job_spec.h"

namespace muster {

class GradientCodec {
 public:
  // Of all codecs.
  static constexpr int64_t kMostBlockElements = 1024;

  // Requires: compression.kind is not kNone.
  explicit GradientCodec(const GradientCompression& compression);

  // Elements of a whole block.
  int64_t block_elements() const;
  // Of a coded block. Requires: 1 <= elements <= block_elements().
  int64_t BytesOf(int64_t elements) const;

  // Codes a block. Of a codec that carries (below), `values` become what the code lacks of them.
  // Requires: bytes.size() == BytesOf(values.size()).
  void Encode(absl::Span<float> values, absl::Span<std::byte> bytes) const;

  // Adds elements [first, first + sum.size()) of a coded block to `sum`, or stores them there if
  // the sum `starts` with them. DATA_LOSS if the bytes are no coded block of so many elements;
  // `sum` is then undefined.
  absl::Status Add(absl::Span<const std::byte> bytes, int64_t elements, int64_t first, bool starts,
                   absl::Span<float> sum) const;

 private:
  const GradientCompression compression_;
};

// Whether gradients are compressed by a codec that carries: what a code lacks is to be added to the
// gradient of the next step (residuals.h).
bool Carries(const GradientCompression& compression);

}  // namespace muster

#endif  // MUSTER_WORKER_COMPRESSION_GRADIENT_CODEC_H_
