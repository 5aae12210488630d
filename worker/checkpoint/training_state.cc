#include "worker/checkpoint/training_state.h"

#include <bit>

#include "base/check.h"
#include "base/sha256.h"

namespace muster {

static_assert(std::endian::native == std::endian::little,
              "hashes are over little-endian bytes, taken as they lie in memory");

std::string ParametersSha256(const Layout& layout, absl::Span<const float> parameters) {
  MUSTER_CHECK_EQ(static_cast<int64_t>(parameters.size()), layout.padded_count());
  Sha256 hash;
  for (const Tensor& tensor : layout.tensors()) {
    hash.Update(absl::string_view(reinterpret_cast<const char*>(parameters.data() + tensor.offset),
                                  static_cast<size_t>(tensor.count) * sizeof(float)));
  }
  return hash.HexDigest();
}

}  // namespace muster
