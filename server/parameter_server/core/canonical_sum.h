// The sum of one step's contributions in the canonical order, whatever order they come in.
//
// The order (docs/algorithms.md, One order of summation). A contributor's micro-batches are added
// up in their order, starting with the first. In the slice of a bucket that belongs to contributor
// c of N (state/bucket_slices.h), the contributors' sums are then added in the order c + 1, c + 2,
// ..., c (modulo N). A contributor without micro-batches adds zeros, as on workers; that only turns
// a sum of -0 into 0, wherever it stands, and is done at the end.
//
// The range is cut into units: what of one tensor that trains lies in one slice and in one segment.
// In a unit a contribution that is next in order is added to the sum at once, from the bytes it
// came in; one that is early goes into the sum of its contributor, or, if micro-batches before it
// are missing there, waits in memory of its own; these count as held. One that covers a unit only
// in part waits until the rest has come. So per element and contributor one partial sum is held, at
// most, beside micro-batches out of their order.
//
// Each element of each micro-batch counts once, however often it comes and however pushes are cut.
//
// Thread-compatible.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_CORE_CANONICAL_SUM_H_
#define MUSTER_SERVER_PARAMETER_SERVER_CORE_CANONICAL_SUM_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/parameter_server/core/buffer_pool.h"
#include "server/parameter_server/core/contributions.h"
#include "server/parameter_server/core/gradient_bytes.h"
#include "server/parameter_server/core/interval_set.h"
#include "state/layout.h"
#include "state/range.h"

namespace muster {

class CanonicalSum {
 public:
  // Sums of `range` of the layout go to `sum`, whose element 0 is element range.offset; both it and
  // the pool must outlive the object. INVALID_ARGUMENT: too many contributors.
  static absl::StatusOr<CanonicalSum> Create(const Layout& layout, Range range,
                                             int64_t segment_elements,
                                             const Contributions& contributions, BufferPool& pool,
                                             absl::Span<float> sum);

  int unit_count() const { return static_cast<int>(units_.size()); }
  Range RangeOfUnit(int unit) const { return units_[unit].range; }
  int SegmentOfUnit(int unit) const { return units_[unit].segment; }
  // Units that share elements with `range`: [first, last).
  struct UnitSpan {
    int first = 0;
    int last = 0;
  };
  UnitSpan UnitsIn(Range range) const;

  // Whether all of `part` of the unit was received of this micro-batch.
  bool Received(int unit, int32_t micro_batch, Range part) const;
  // Whether Add would hold memory, beyond what the unit needs to go on at all.
  bool MustHold(int unit, int32_t micro_batch, Range part) const;
  // Adds what of `part` is new. Element i of the space is element i - offset of `values`. Requires:
  // part lies in the unit and is not empty.
  void Add(int unit, int32_t micro_batch, Range part, const GradientBytes& values, int64_t offset);

  // Nothing of the unit's step has come.
  bool untouched(int unit) const {
    return !units_[unit].any && units_[unit].partials.empty() && units_[unit].staged.empty();
  }
  // The unit's sum is whole.
  bool complete(int unit) const { return units_[unit].folded == contributions_.contributors(); }
  // Begins the unit's next step. Requires: it is complete, or what was received is to be dropped.
  void Reset(int unit);

  // Memory that early contributions take.
  int64_t held_bytes() const { return held_bytes_; }
  // As much as is needed for contributors to bring their micro-batches one after the other: all but
  // one have a partial sum everywhere, and each has one unit that has come in part.
  int64_t BytesOfPartialSums() const;
  // How often a contributor's sum went into a unit's: only rises.
  int64_t folds() const { return folds_; }

 private:
  // A contributor's sum that cannot go into the unit's yet, or is not whole.
  struct Partial {
    int32_t contributor = 0;
    int32_t next = 0;     // how many of its micro-batches are in
    PooledFloats values;  // empty: the unit's sum has it, since nobody is before
  };
  // A micro-batch that has not all come, or not in order.
  struct Staged {
    int32_t micro_batch = 0;
    PooledFloats values;
    IntervalSet have;
  };
  struct Unit {
    Range range;
    int32_t owner = 0;
    int32_t segment = 0;
    // Contributors, in canonical order, whose sums are in the unit's, or who have none; the next
    // one has.
    int32_t folded = 0;
    bool any = false;  // the unit's sum has a value
    std::vector<Partial> partials;
    std::vector<Staged> staged;
  };
  // Where a contribution lies.
  struct Source {
    const GradientBytes* bytes = nullptr;  // with `first`, or else `values`
    int64_t first = 0;
    absl::Span<const float> values;
    void CopyTo(absl::Span<float> target) const;
    void AddTo(absl::Span<float> target) const;
  };

  CanonicalSum(const Contributions& contributions, BufferPool& pool, absl::Span<float> sum,
               int64_t base);

  int32_t PositionOf(const Unit& unit, int32_t contributor) const;
  int32_t ContributorAt(const Unit& unit, int32_t position) const;
  // How many of the contributor's micro-batches are in its sum.
  int32_t SummedOf(const Unit& unit, int32_t contributor) const;
  absl::Span<float> SumOf(const Unit& unit);
  PooledFloats Hold(const Unit& unit);
  void Unhold(PooledFloats values);
  // Adds a micro-batch that is next of its contributor.
  void Take(Unit& unit, int32_t micro_batch, const Source& source);
  void SkipEmptyShares(Unit& unit) const;
  // Adds to the unit's sum what is there and next in order.
  void Fold(Unit& unit);
  void TakeStaged(Unit& unit, int32_t contributor);

  Contributions contributions_;
  bool has_empty_shares_ = false;
  BufferPool* pool_;
  absl::Span<float> sum_;
  int64_t base_ = 0;
  std::vector<Unit> units_;  // in order of offset
  int64_t held_bytes_ = 0;
  int64_t folds_ = 0;
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_CORE_CANONICAL_SUM_H_
