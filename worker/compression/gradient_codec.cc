#include "worker/compression/gradient_codec.h"

#include "base/check.h"
#include "worker/compression/int8_codec.h"
#include "worker/compression/top_k_codec.h"

namespace muster {

static_assert(kInt8BlockElements <= GradientCodec::kMostBlockElements);
static_assert(kTopKBlockElements <= GradientCodec::kMostBlockElements);

using Kind = GradientCompression::Kind;

GradientCodec::GradientCodec(const GradientCompression& compression) : compression_(compression) {
  MUSTER_CHECK(compression.kind != Kind::kNone)
      << "gradients that are not compressed have no codec";
}

int64_t GradientCodec::block_elements() const {
  return compression_.kind == Kind::kInt8 ? kInt8BlockElements : kTopKBlockElements;
}

int64_t GradientCodec::BytesOf(int64_t elements) const {
  return compression_.kind == Kind::kInt8 ? Int8BytesOf(elements)
                                          : TopKBytesOf(elements, compression_.top_k_fraction);
}

void GradientCodec::Encode(absl::Span<float> values, absl::Span<std::byte> bytes) const {
  if (compression_.kind == Kind::kInt8) {
    EncodeInt8(values, bytes);
  } else {
    EncodeTopK(values, compression_.top_k_fraction, bytes);
  }
}

absl::Status GradientCodec::Add(absl::Span<const std::byte> bytes, int64_t elements, int64_t first,
                                bool starts, absl::Span<float> sum) const {
  return compression_.kind == Kind::kInt8
             ? AddInt8(bytes, elements, first, starts, sum)
             : AddTopK(bytes, elements, compression_.top_k_fraction, first, starts, sum);
}

bool Carries(const GradientCompression& compression) { return compression.kind == Kind::kTopK; }

}  // namespace muster
