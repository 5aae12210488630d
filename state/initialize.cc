#include "state/initialize.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random.h"

namespace muster {

void InitializeTensor(const Tensor& tensor, uint64_t seed, absl::Span<float> values) {
  MUSTER_CHECK_EQ(static_cast<int64_t>(values.size()), tensor.count);
  const TensorSpec& spec = tensor.spec;
  const RandomStream stream(seed, absl::StrCat("initialize/", spec.name));
  switch (spec.initializer) {
    case Initializer::kZero:
      std::fill(values.begin(), values.end(), 0.0f);
      return;
    case Initializer::kOne:
      std::fill(values.begin(), values.end(), 1.0f);
      return;
    case Initializer::kNormal:
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(spec.scale * stream.Normal(i));
      }
      return;
    case Initializer::kUniform:
      // 2u - 1 is exact, so the product is the only rounding, and it stays below `scale`.
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = spec.scale * (2.0f * stream.UniformFloat(i) - 1.0f);
      }
      return;
  }
}

void InitializeParameters(const Layout& layout, uint64_t seed, absl::Span<float> flat) {
  MUSTER_CHECK_EQ(static_cast<int64_t>(flat.size()), layout.padded_count());
  std::fill(flat.begin(), flat.end(), 0.0f);
  for (const Tensor& tensor : layout.tensors()) {
    InitializeTensor(tensor, seed, flat.subspan(tensor.offset, tensor.count));
  }
}

}  // namespace muster
