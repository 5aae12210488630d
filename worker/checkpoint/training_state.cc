#include "worker/checkpoint/training_state.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace muster {

static_assert(std::endian::native == std::endian::little,
              "hashes are over little-endian bytes, taken as they lie in memory");

std::string CombineDigests(const TensorDigests& digests) {
  Sha256 hash;
  for (const auto& [name, digest] : digests) hash.Update(absl::StrCat(digest, "  ", name, "\n"));
  return hash.HexDigest();
}

std::string ParametersSha256(const Layout& layout, absl::Span<const float> parameters) {
  MUSTER_CHECK_EQ(static_cast<int64_t>(parameters.size()), layout.padded_count());
  ParametersHash hash(layout);
  for (int block = 0; block < layout.block_count(); ++block) {
    hash.AddBlock(block, parameters.data() + layout.RangeOfBlock(block).offset);
  }
  return hash.HexDigest();
}

void ParametersHash::AddBlock(int block, const float* parameters) {
  const int64_t begin = layout_.RangeOfBlock(block).offset;
  for (; next_tensor_ < layout_.tensors().size(); ++next_tensor_) {
    const Tensor& tensor = layout_.tensors()[next_tensor_];
    MUSTER_CHECK_GE(tensor.spec.block, block) << "blocks out of order";
    if (tensor.spec.block != block) return;
    digests_[tensor.spec.name] = Sha256Hex(
        absl::string_view(reinterpret_cast<const char*>(parameters + tensor.offset - begin),
                          static_cast<size_t>(tensor.count) * sizeof(float)));
  }
}

}  // namespace muster
