#include "worker/compression/block_cut.h"

#include <algorithm>

namespace muster {

BlockCut::BlockCut(const Layout& layout, int bucket, const GradientCodec& codec)
    : block_elements_(codec.block_elements()),
      block_bytes_(codec.BytesOf(block_elements_)),
      codec_(codec) {
  const Bucket& whole = layout.buckets()[static_cast<size_t>(bucket)];
  const int64_t end = whole.offset + whole.count;
  const std::vector<Range>& trained = layout.trained_ranges();
  auto range = std::partition_point(trained.begin(), trained.end(),
                                    [&](const Range& each) { return each.end() <= whole.offset; });
  for (; range != trained.end() && range->offset < end; ++range) {
    const int64_t from = std::max(range->offset, whole.offset);
    const int64_t count = std::min(range->end(), end) - from;
    segments_.push_back({{from, count}, count_, bytes_});
    count_ += static_cast<int>((count + block_elements_ - 1) / block_elements_);
    bytes_ += count / block_elements_ * block_bytes_;
    if (const int64_t rest = count % block_elements_; rest > 0) bytes_ += codec_.BytesOf(rest);
  }
}

const BlockCut::Segment& BlockCut::SegmentOf(int block) const {
  const auto after =
      std::partition_point(segments_.begin(), segments_.end(),
                           [&](const Segment& each) { return each.first_block <= block; });
  return *std::prev(after);
}

BlockCut::Block BlockCut::At(int block) const {
  const Segment& segment = SegmentOf(block);
  const int64_t before = block - segment.first_block;
  const int64_t offset = segment.elements.offset + before * block_elements_;
  const int64_t count = std::min(block_elements_, segment.elements.end() - offset);
  return {{offset, count}, segment.bytes_at + before * block_bytes_, codec_.BytesOf(count)};
}

int64_t BlockCut::BytesBefore(int block) const {
  return block == count_ ? bytes_ : At(block).bytes_at;
}

BlockCut::Blocks BlockCut::Touching(Range range) const {
  const auto first = std::partition_point(
      segments_.begin(), segments_.end(),
      [&](const Segment& each) { return each.elements.end() <= range.offset; });
  const auto end =
      std::partition_point(segments_.begin(), segments_.end(),
                           [&](const Segment& each) { return each.elements.offset < range.end(); });
  if (range.count == 0 || first >= end) return {};
  const auto block_of = [&](const Segment& segment, int64_t element) {
    return segment.first_block +
           static_cast<int>((element - segment.elements.offset) / block_elements_);
  };
  const Segment& last = *std::prev(end);
  return {block_of(*first, std::max(range.offset, first->elements.offset)),
          block_of(last, std::min(range.end(), last.elements.end()) - 1) + 1};
}

}  // namespace muster
