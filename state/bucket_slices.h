// How the buckets of a layout are cut among owners: each bucket into one slice per owner, in the
// order of the owners. Slices may be empty.
//
// Slice c of a bucket is owner c's: its shard under sharding, and what fixes the order of summation
// (c+1, c+2, ..., c; docs/algorithms.md) under every strategy. So replicated and sharded gradients
// have the same bits, as long as they are summed by the same cut.
//
// Balance. What a bucket's size leaves over goes to other owners in each bucket, to those that are
// furthest behind: over the whole layout no owner has one element beyond its share of the elements,
// padding included, and with equal shares none has two fewer than another. That holds for owners;
// in one bucket an owner may have up to Layout::kAlignment elements more than its share of that.
//
// Alignment. Slices begin and end at multiples of Layout::kAlignment elements, so vector loads and
// cache lines are whole in every buffer of the flat space. Only the largest bucket is cut anywhere:
// it evens out what such units leave uneven. Where it is too small for that (a few elements per
// owner), all buckets are cut anywhere.
//
// A pure value; immutable after construction, so thread-safe.
#ifndef MUSTER_STATE_BUCKET_SLICES_H_
#define MUSTER_STATE_BUCKET_SLICES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "state/layout.h"
#include "state/range.h"

namespace muster {

struct OwnedRange {
  Range range;
  Rank owner = 0;
  bool operator==(const OwnedRange&) const = default;
};

class BucketSlices {
 public:
  static constexpr int kMaxOwners = 4096;
  // Largest sum of weights.
  static constexpr int64_t kMaxWeight = (int64_t{1} << 31) - 1;

  // Owners 0 .. owners - 1 with equal shares. INVALID_ARGUMENT unless 1 <= owners <= kMaxOwners.
  static absl::StatusOr<BucketSlices> Even(const Layout& layout, int owners);
  // Owner i's share is weights[i] over the sum of all. INVALID_ARGUMENT: a negative weight, none
  // above zero, or a sum above kMaxWeight.
  static absl::StatusOr<BucketSlices> Weighted(const Layout& layout,
                                               absl::Span<const int64_t> weights);

  int owners() const { return owners_; }
  int bucket_count() const { return static_cast<int>(buckets_.size()); }

  // Elements of each owner's slice: the `counts` of a collective over the bucket.
  absl::Span<const int64_t> CountsOf(int bucket) const {
    return absl::MakeConstSpan(counts_).subspan(static_cast<size_t>(bucket) * owners_, owners_);
  }
  // In the flat space.
  Range SliceOf(int bucket, Rank owner) const;
  // Elements of all slices of an owner.
  int64_t OwnedBy(Rank owner) const;

  // `range` cut where the owner changes, in order of offset: for whoever sums a range of another
  // cut in the canonical order. Requires: range lies in the layout.
  std::vector<OwnedRange> PiecesOf(Range range) const;

 private:
  BucketSlices(const Layout& layout, int owners);
  int owners_ = 0;
  std::vector<Range> buckets_;
  std::vector<int64_t> counts_;  // by bucket, then owner
};

}  // namespace muster

#endif  // MUSTER_STATE_BUCKET_SLICES_H_
