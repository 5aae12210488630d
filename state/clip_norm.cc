#include "state/clip_norm.h"

#include <algorithm>

#include "base/check.h"

namespace muster {

void AddTrainedSquares(const Layout& layout, Range range, absl::Span<const float> gradient,
                       SquaredSum& sum) {
  MUSTER_CHECK(range.offset >= 0 && range.count >= 0 && range.end() <= layout.padded_count());
  MUSTER_CHECK_EQ(static_cast<int64_t>(gradient.size()), range.count);
  const std::vector<Range>& trained = layout.trained_ranges();
  auto next = std::partition_point(trained.begin(), trained.end(), [&](const Range& candidate) {
    return candidate.end() <= range.offset;
  });
  for (; next != trained.end() && next->offset < range.end(); ++next) {
    const int64_t begin = std::max(next->offset, range.offset);
    const int64_t end = std::min(next->end(), range.end());
    sum.Add(gradient.subspan(begin - range.offset, end - begin));
  }
}

}  // namespace muster
