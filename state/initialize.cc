#include "state/initialize.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random.h"

namespace muster {

void InitializeElements(const Tensor& tensor, uint64_t seed, int64_t first,
                        absl::Span<float> values) {
  MUSTER_CHECK(first >= 0 && static_cast<int64_t>(values.size()) <= tensor.count - first)
      << values.size() << " from " << first << " on, of " << tensor.count;
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
        values[i] = static_cast<float>(spec.scale * stream.Normal(first + i));
      }
      return;
    case Initializer::kUniform:
      // 2u - 1 is exact, so the product is the only rounding, and it stays below `scale`.
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = spec.scale * (2.0f * stream.UniformFloat(first + i) - 1.0f);
      }
      return;
  }
}

void InitializeTensor(const Tensor& tensor, uint64_t seed, absl::Span<float> values) {
  MUSTER_CHECK_EQ(static_cast<int64_t>(values.size()), tensor.count);
  InitializeElements(tensor, seed, 0, values);
}

void InitializeRange(const Layout& layout, uint64_t seed, Range range, absl::Span<float> flat) {
  MUSTER_CHECK_EQ(static_cast<int64_t>(flat.size()), range.count);
  MUSTER_CHECK(range.offset >= 0 && range.end() <= layout.padded_count());
  std::fill(flat.begin(), flat.end(), 0.0f);
  for (const Tensor& tensor : layout.tensors()) {
    const int64_t begin = std::max(tensor.offset, range.offset);
    const int64_t end = std::min(tensor.offset + tensor.count, range.end());
    if (begin >= end) continue;
    InitializeElements(tensor, seed, begin - tensor.offset,
                       flat.subspan(begin - range.offset, end - begin));
  }
}

void InitializeParameters(const Layout& layout, uint64_t seed, absl::Span<float> flat) {
  InitializeRange(layout, seed, {0, layout.padded_count()}, flat);
}

}  // namespace muster
