// Exact sums of squares: the squared norm of a gradient, and whether it is finite.
//
// The square of a float is a 48-bit integer times a power of two from 2^-298 to 2^208, so a sum of
// squares fits a fixed-point number of about 600 bits, in which addition is exact. The result
// therefore does not depend on order, on how the space is cut, nor on how many ranks sum which
// part; it is rounded once, when read. (Kulisch, "Computer Arithmetic and Validity", 2008, section
// 8: the long accumulator.)
//
// Partial results travel as kWords integers that may be added word by word, so the ranks' squared
// norms combine in an ordinary int64 sum all-reduce of 168 bytes.
//
// A value; thread-compatible.
#ifndef MUSTER_STATE_GRADIENT_NORM_H_
#define MUSTER_STATE_GRADIENT_NORM_H_

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace muster {

class SquaredSum {
 public:
  // Words of the exchange form: 20 digits of 32 bits, least first, and the count of partial sums
  // that met a NaN or an infinity.
  static constexpr int kDigits = 20;
  static constexpr int kWords = kDigits + 1;
  using Words = std::array<int64_t, kWords>;

  // Adds the square of every value. At most 2^40 values in all.
  void Add(absl::Span<const float> values);

  // Adds what `other` holds.
  void Merge(const SquaredSum& other);

  // False if a NaN or infinity was added.
  bool finite() const { return nonfinite_ == 0; }

  // The sum, correctly rounded; NaN if not finite(). Adding zeros does not change it.
  double Value() const;

  // The sum in the exchange form, each digit in [0, 2^32). Up to 2^30 such arrays may be added word
  // by word before FromWords.
  Words ToWords() const;

  // INVALID_ARGUMENT if the size is wrong or a word is negative: not a sum of ToWords() results.
  static absl::StatusOr<SquaredSum> FromWords(absl::Span<const int64_t> words);

 private:
  void Normalize();

  std::array<uint64_t, kDigits> digits_ = {};  // base 2^32, units of 2^-298; each below 2^32
  int64_t nonfinite_ = 0;
};

}  // namespace muster

#endif  // MUSTER_STATE_GRADIENT_NORM_H_
