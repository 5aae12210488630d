#include "worker/runtime/quantile_histogram.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace muster {
namespace {

// Bucket i holds [kLeast * kGrowth^i, kLeast * kGrowth^(i + 1)).
constexpr double kGrowth = 1.02;
// What stands for all values of a bucket, over its lower end: as far, relatively, from either end.
constexpr double kMiddle = 2 * kGrowth / (kGrowth + 1);
static_assert((kGrowth - 1) / (kGrowth + 1) < 0.999 * QuantileHistogram::kRelativeError,
              "leaves room for the rounding of logarithms");

}  // namespace

QuantileHistogram::QuantileHistogram() : counts_(BucketOf(kMost) + 1) {}

size_t QuantileHistogram::BucketOf(double value) {
  MUSTER_CHECK(!std::isnan(value));
  static const double per_bucket = std::log(kGrowth);
  return static_cast<size_t>(std::log(std::clamp(value, kLeast, kMost) / kLeast) / per_bucket);
}

void QuantileHistogram::Add(double value) {
  ++counts_[BucketOf(value)];
  ++count_;
}

void QuantileHistogram::Remove(double value) {
  MUSTER_CHECK(counts_[BucketOf(value)] > 0) << "value " << value << " was not added";
  --counts_[BucketOf(value)];
  --count_;
}

double QuantileHistogram::Quantile(double fraction) const {
  MUSTER_CHECK(fraction >= 0 && fraction <= 1) << fraction;
  if (count_ == 0) return 0;
  int64_t above = std::llround(fraction * static_cast<double>(count_ - 1)) + 1;
  for (size_t bucket = 0; bucket < counts_.size(); ++bucket) {
    above -= counts_[bucket];
    if (above <= 0) return kLeast * std::pow(kGrowth, static_cast<double>(bucket)) * kMiddle;
  }
  MUSTER_CHECK(false) << "the buckets hold fewer than " << count_ << " values";
  return 0;
}

}  // namespace muster
