// Quantiles against exact ones of the same values.
#include "worker/runtime/quantile_histogram.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "base/random.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

constexpr double kFractions[] = {0, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1};

double Exact(std::vector<double> values, double fraction) {
  std::sort(values.begin(), values.end());
  return values[std::llround(fraction * static_cast<double>(values.size() - 1))];
}

void ExpectClose(const QuantileHistogram& histogram, const std::vector<double>& values,
                 const std::string& what) {
  ASSERT_EQ(histogram.count(), static_cast<int64_t>(values.size()));
  for (const double fraction : kFractions) {
    const double exact = Exact(values, fraction);
    EXPECT_NEAR(histogram.Quantile(fraction), exact, exact * QuantileHistogram::kRelativeError)
        << what << ", " << values.size() << " values, fraction " << fraction;
  }
}

TEST(QuantileHistogramTest, IsZeroWithoutValues) {
  EXPECT_EQ(QuantileHistogram().Quantile(0.5), 0);
  EXPECT_EQ(QuantileHistogram().count(), 0);
}

TEST(QuantileHistogramTest, IsWithinItsErrorOfExactQuantiles) {
  struct Distribution {
    const char* name;
    std::function<double(const RandomStream&, uint64_t)> draw;
  };
  const Distribution distributions[] = {
      {"uniform", [](const RandomStream& r, uint64_t i) { return 0.5 + 99.5 * r.Uniform(i); }},
      {"log-normal",
       [](const RandomStream& r, uint64_t i) { return 10 * std::exp(1.5 * r.Normal(i)); }},
      {"two humps",
       [](const RandomStream& r, uint64_t i) {
         return r.Below(2 * i, 50) == 0 ? 900 + r.Uniform(2 * i + 1) : 3 + r.Uniform(2 * i + 1);
       }},
      {"whole range",
       [](const RandomStream& r, uint64_t i) {
         return QuantileHistogram::kLeast *
                std::pow(QuantileHistogram::kMost / QuantileHistogram::kLeast, r.Uniform(i));
       }},
      {"all equal", [](const RandomStream&, uint64_t) { return 17.3; }},
  };
  for (const Distribution& distribution : distributions) {
    for (const uint64_t count : {1, 2, 3, 100, 20'000}) {
      const RandomStream random(7, distribution.name, count);
      QuantileHistogram histogram;
      std::vector<double> values;
      for (uint64_t i = 0; i < count; ++i) {
        values.push_back(distribution.draw(random, i));
        histogram.Add(values.back());
      }
      ExpectClose(histogram, values, distribution.name);
    }
  }
}

// Both ends of each bucket, where the error is greatest.
TEST(QuantileHistogramTest, HoldsItsErrorEverywhereInItsRange) {
  for (double value = QuantileHistogram::kLeast; value <= QuantileHistogram::kMost;
       value *= 1.001) {
    QuantileHistogram histogram;
    histogram.Add(value);
    ASSERT_NEAR(histogram.Quantile(0.5), value, value * QuantileHistogram::kRelativeError);
  }
}

TEST(QuantileHistogramTest, RemovedValuesNoLongerCount) {
  const RandomStream random(11, "window");
  QuantileHistogram histogram;
  std::deque<double> window;
  for (uint64_t i = 0; i < 5'000; ++i) {
    window.push_back(10 * std::exp(1.5 * random.Normal(i)) + 0.01 * static_cast<double>(i));
    histogram.Add(window.back());
    if (window.size() > 300) {
      histogram.Remove(window.front());
      window.pop_front();
    }
    if (i % 500 == 499) ExpectClose(histogram, {window.begin(), window.end()}, "window");
  }
}

TEST(QuantileHistogramTest, ValuesBeyondItsRangeCountAsItsEnds) {
  QuantileHistogram histogram;
  for (const double value : {0.0, -5.0, 1e-9}) histogram.Add(value);
  EXPECT_NEAR(histogram.Quantile(1), QuantileHistogram::kLeast, 1e-5);
  for (const double value : {1e9, HUGE_VAL, 1e12, 1e13}) histogram.Add(value);
  EXPECT_NEAR(histogram.Quantile(1), QuantileHistogram::kMost, 1e5);
  histogram.Remove(-5.0);
  EXPECT_EQ(histogram.count(), 6);
}

TEST(QuantileHistogramDeathTest, RemovingWhatIsNotThereIsABug) {
  QuantileHistogram histogram;
  histogram.Add(5);
  EXPECT_DEATH(histogram.Remove(50), "was not added");
  EXPECT_DEATH(histogram.Add(std::nan("")), "isnan");
}

}  // namespace
}  // namespace muster
