// Quantiles of many positive values in bounded memory and constant time: a histogram whose buckets
// grow by a constant factor, as in Masson, Rim and Lee, "DDSketch", VLDB 2019, section 2.1.
//
// A quantile is within kRelativeError of the exact one, for values in [kLeast, kMost]; values
// beyond count as the nearer of the two. The unit is the caller's. Not thread-safe.
#ifndef MUSTER_WORKER_RUNTIME_QUANTILE_HISTOGRAM_H_
#define MUSTER_WORKER_RUNTIME_QUANTILE_HISTOGRAM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace muster {

class QuantileHistogram {
 public:
  static constexpr double kRelativeError = 0.01;
  static constexpr double kLeast = 1e-3;
  static constexpr double kMost = 1e7;

  QuantileHistogram();

  // Requires: the value is no NaN.
  void Add(double value);
  // Forgets one value. Requires: it was added, and has not been removed since.
  void Remove(double value);

  int64_t count() const { return count_; }
  // The value of rank round(fraction * (count - 1)) in ascending order, from 0; 0 without values.
  // Requires: fraction in [0, 1]. Costs a walk over about 1,200 buckets.
  double Quantile(double fraction) const;

 private:
  static size_t BucketOf(double value);

  std::vector<int64_t> counts_;  // by bucket
  int64_t count_ = 0;
};

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_QUANTILE_HISTOGRAM_H_
