// Layouts for property tests, from a seed.
#ifndef MUSTER_TESTS_STATE_RANDOM_LAYOUT_H_
#define MUSTER_TESTS_STATE_RANDOM_LAYOUT_H_

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "state/layout.h"

namespace muster {

inline int64_t Draw(std::mt19937& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

// One to five blocks of one to four tensors. Tensors have from one element to a few thousand, so
// that they straddle buckets and slices, or fill none; buckets hold from one unit to all of it.
inline Layout RandomLayout(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TensorSpec> tensors;
  const int64_t largest = Draw(random, 0, 2) == 0 ? 100 : 5000;
  const int64_t blocks = Draw(random, 1, 5);
  for (int block = 0; block < blocks; ++block) {
    for (int64_t i = Draw(random, 1, 4); i > 0; --i) {
      TensorSpec spec;
      spec.name = absl::StrCat("tensor", tensors.size());
      spec.shape = {Draw(random, 0, 3) == 0 ? 1 : Draw(random, 1, largest)};
      spec.block = block;
      tensors.push_back(std::move(spec));
    }
  }
  return Layout::Create(std::move(tensors), Draw(random, 64, 4000)).value();
}

}  // namespace muster

#endif  // MUSTER_TESTS_STATE_RANDOM_LAYOUT_H_
