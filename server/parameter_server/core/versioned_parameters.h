// Parameters in segments, of which older versions stay as long as somebody reads them.
//
// Whoever reads pins segments; memory that is pinned never changes. A segment that is updated while
// it is pinned moves on to other memory, a copy, and the old one goes back to the pool with its
// last pin. So readers cost a copy of those segments only that are updated under them, and updates
// never wait for readers.
//
// Thread-compatible; pins are released under the same lock.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_CORE_VERSIONED_PARAMETERS_H_
#define MUSTER_SERVER_PARAMETER_SERVER_CORE_VERSIONED_PARAMETERS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "server/parameter_server/core/buffer_pool.h"
#include "server/parameter_server/core/gradient_bytes.h"
#include "server/parameter_server/core/table_messages.h"
#include "state/range.h"
#include "state/tensor_sums.h"
#include "state/update_rule.h"

namespace muster {

class VersionedParameters {
 public:
  // Of any contents, version 0. `rule` and `pool` must outlive the object. Takes its memory beyond
  // the budget if need be: ask BytesFor first.
  VersionedParameters(Range range, int64_t segment_elements, const UpdateRule& rule,
                      BufferPool& pool);

  static int64_t BytesFor(Range range, int64_t segment_elements, const UpdateRule& rule);

  Range range() const { return range_; }
  int segment_count() const { return static_cast<int>(segments_.size()); }
  Range RangeOfSegment(int segment) const { return segments_[segment].range; }
  // Segments that share elements with `range`: [first, last). Requires: it lies in range().
  struct SegmentSpan {
    int first = 0;
    int last = 0;
  };
  SegmentSpan SegmentsIn(Range range) const;

  Version version(int segment) const { return segments_[segment].version; }
  void SetVersion(int segment, Version version) { segments_[segment].version = version; }

  absl::Span<const float> values(int segment) const { return segments_[segment].memory->span(); }
  absl::Span<const float> slot(int segment, int slot) const {
    return segments_[segment].slots[slot].span();
  }
  // To write them. Requires: nobody has them pinned.
  absl::Span<float> mutable_values(int segment);
  absl::Span<float> mutable_slot(int segment, int slot) {
    return segments_[segment].slots[slot].span();
  }

  // UpdateRule::Prepare and Apply of one segment. `gradient` is the segment's.
  void Prepare(int segment, const UpdateScalars& scalars, absl::Span<const float> gradient,
               TensorSums& sums);
  void Apply(int segment, const UpdateScalars& scalars, absl::Span<const float> gradient);
  // The same with a gradient that lies where it came: the segment's begins with element `first` of
  // `gradient`.
  void Apply(int segment, const UpdateScalars& scalars, const GradientBytes& gradient,
             int64_t first);

  // Pins what of the segments is current and appends the elements of `range` to `pieces`.
  PinId Pin(Range range, std::vector<absl::Span<const float>>* pieces);
  // Requires: it came from Pin and was not released.
  void Unpin(PinId pin);

  size_t pin_count() const { return pins_.size(); }
  // Memory of versions that are no longer current.
  int64_t retired_bytes() const { return retired_bytes_; }

 private:
  struct Memory {
    PooledFloats floats;
    int64_t pins = 0;
    bool retired = false;
    absl::Span<const float> span() const { return floats.span(); }
  };
  struct Segment {
    Range range;
    Version version = 0;
    std::shared_ptr<Memory> memory;
    std::vector<PooledFloats> slots;
  };
  // The slots of a segment as the rule wants them.
  std::vector<absl::Span<float>> SlotsOf(Segment& segment);
  // The segment's parameters, to be changed: a copy, if somebody has them pinned.
  absl::Span<float> Unpinned(Segment& segment);

  const Range range_;
  const int64_t segment_elements_;
  const UpdateRule& rule_;
  BufferPool& pool_;
  std::vector<Segment> segments_;
  std::map<PinId, std::vector<std::shared_ptr<Memory>>> pins_;
  PinId next_pin_ = 1;
  int64_t retired_bytes_ = 0;
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_CORE_VERSIONED_PARAMETERS_H_
