#include "state/bucket_slices.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/check.h"

namespace muster {
namespace {

// Deals units to owners in proportion to their weights, from bucket to bucket: first what each has
// a right to after all units so far, rounded down, then one more to those furthest behind.
//
// Nobody ever gets a whole unit beyond its right: units left over after rounding down are fewer
// than the owners that are behind by a fraction, and each of those gets one at most.
class Dealer {
 public:
  explicit Dealer(absl::Span<const int64_t> weights)
      : weights_(weights),
        total_weight_(std::accumulate(weights.begin(), weights.end(), int64_t{0})),
        behind_(weights.size()) {}

  void Deal(int64_t units, absl::Span<int64_t> counts) {
    // Whole cycles give everyone exactly its share, which also keeps products within 64 bits.
    const int64_t cycles = units / total_weight_;
    const int64_t rest = units % total_weight_;
    int64_t left = units;
    for (size_t i = 0; i < weights_.size(); ++i) {
      behind_[i] += rest * weights_[i];
      counts[i] = std::max(int64_t{0}, cycles * weights_[i] + FloorDivide(behind_[i]));
      behind_[i] -= (counts[i] - cycles * weights_[i]) * total_weight_;
      left -= counts[i];
    }
    if (left > 0) Add(left, counts);
    // Owners that are ahead and get nothing leave less for the others.
    for (; left < 0; ++left) TakeOne(counts);
  }

 private:
  int64_t FloorDivide(int64_t value) const {
    return value / total_weight_ - (value % total_weight_ < 0 ? 1 : 0);
  }

  void Add(int64_t left, absl::Span<int64_t> counts) {
    std::vector<size_t> order(counts.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [this](size_t a, size_t b) { return behind_[a] > behind_[b]; });
    MUSTER_CHECK_LE(left, static_cast<int64_t>(order.size()));
    for (int64_t i = 0; i < left; ++i) {
      ++counts[order[i]];
      behind_[order[i]] -= total_weight_;
    }
  }

  void TakeOne(absl::Span<int64_t> counts) {
    size_t least = counts.size();
    for (size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] > 0 && (least == counts.size() || behind_[i] < behind_[least])) least = i;
    }
    MUSTER_CHECK_LT(least, counts.size());
    --counts[least];
    behind_[least] += total_weight_;
  }

  const absl::Span<const int64_t> weights_;
  const int64_t total_weight_;
  // The units each has a right to beyond those it has, times the total weight.
  std::vector<int64_t> behind_;
};

}  // namespace

BucketSlices::BucketSlices(const Layout& layout, int owners) : owners_(owners) {
  for (const Bucket& bucket : layout.buckets()) buckets_.push_back({bucket.offset, bucket.count});
  counts_.resize(buckets_.size() * static_cast<size_t>(owners));
}

absl::StatusOr<BucketSlices> BucketSlices::Even(const Layout& layout, int owners) {
  if (owners < 1 || owners > kMaxOwners) {
    return absl::InvalidArgumentError(
        absl::StrFormat("bucket slices: expected 1 to %d owners, got %d", kMaxOwners, owners));
  }
  return Weighted(layout, std::vector<int64_t>(static_cast<size_t>(owners), 1));
}

absl::StatusOr<BucketSlices> BucketSlices::Weighted(const Layout& layout,
                                                    absl::Span<const int64_t> weights) {
  if (weights.empty() || weights.size() > static_cast<size_t>(kMaxOwners)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "bucket slices: expected 1 to %d owners, got %d", kMaxOwners, weights.size()));
  }
  int64_t total_weight = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] < 0 || weights[i] > kMaxWeight - total_weight) {
      return absl::InvalidArgumentError(
          absl::StrFormat("bucket slices: weight %d is %d; expected none below 0 and a sum of 1 to "
                          "%d",
                          i, weights[i], kMaxWeight));
    }
    total_weight += weights[i];
  }
  if (total_weight == 0) {
    return absl::InvalidArgumentError(
        "bucket slices: all weights are 0; nobody would own anything");
  }

  BucketSlices slices(layout, static_cast<int>(weights.size()));
  const auto counts_of = [&slices, owners = weights.size()](size_t bucket) {
    return absl::MakeSpan(slices.counts_).subspan(bucket * owners, owners);
  };
  const auto larger = [](const Range& a, const Range& b) { return a.count < b.count; };
  const size_t largest =
      static_cast<size_t>(std::max_element(slices.buckets_.begin(), slices.buckets_.end(), larger) -
                          slices.buckets_.begin());

  // Units everywhere but in the largest bucket, which gets each owner to its exact share.
  std::vector<int64_t> missing(weights.size());
  Dealer(weights).Deal(layout.padded_count(), absl::MakeSpan(missing));
  Dealer by_units(weights);
  for (size_t b = 0; b < slices.buckets_.size(); ++b) {
    if (b == largest) continue;
    MUSTER_CHECK_EQ(slices.buckets_[b].count % Layout::kAlignment, 0);
    const absl::Span<int64_t> counts = counts_of(b);
    by_units.Deal(slices.buckets_[b].count / Layout::kAlignment, counts);
    for (size_t i = 0; i < counts.size(); ++i) {
      counts[i] *= Layout::kAlignment;
      missing[i] -= counts[i];
    }
  }
  if (*std::min_element(missing.begin(), missing.end()) >= 0) {
    std::copy(missing.begin(), missing.end(), counts_of(largest).begin());
    return slices;
  }
  Dealer by_elements(weights);
  for (size_t b = 0; b < slices.buckets_.size(); ++b) {
    by_elements.Deal(slices.buckets_[b].count, counts_of(b));
  }
  return slices;
}

Range BucketSlices::SliceOf(int bucket, Rank owner) const {
  MUSTER_CHECK(bucket >= 0 && bucket < bucket_count() && owner >= 0 && owner < owners_)
      << "bucket " << bucket << ", owner " << owner;
  const absl::Span<const int64_t> counts = CountsOf(bucket);
  return {std::accumulate(counts.begin(), counts.begin() + owner, buckets_[bucket].offset),
          counts[owner]};
}

int64_t BucketSlices::OwnedBy(Rank owner) const {
  int64_t total = 0;
  for (int bucket = 0; bucket < bucket_count(); ++bucket) total += CountsOf(bucket)[owner];
  return total;
}

std::vector<OwnedRange> BucketSlices::PiecesOf(Range range) const {
  std::vector<OwnedRange> pieces;
  if (range.count == 0) return pieces;
  MUSTER_CHECK(range.offset >= 0 && range.end() <= buckets_.back().end())
      << "range " << range.offset << " + " << range.count;
  const auto after =
      std::upper_bound(buckets_.begin(), buckets_.end(), range.offset,
                       [](int64_t offset, const Range& bucket) { return offset < bucket.offset; });
  for (auto bucket = std::prev(after); bucket != buckets_.end() && bucket->offset < range.end();
       ++bucket) {
    int64_t begin = bucket->offset;
    const absl::Span<const int64_t> counts = CountsOf(static_cast<int>(bucket - buckets_.begin()));
    for (Rank owner = 0; owner < owners_; ++owner) {
      const int64_t end = begin + counts[owner];
      const int64_t from = std::max(begin, range.offset);
      const int64_t to = std::min(end, range.end());
      begin = end;
      if (from >= to) continue;
      if (!pieces.empty() && pieces.back().owner == owner) {
        pieces.back().range.count += to - from;
      } else {
        pieces.push_back({{from, to - from}, owner});
      }
    }
  }
  return pieces;
}

}  // namespace muster
