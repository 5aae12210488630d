#include "state/gradient_norm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace muster {
namespace {

constexpr int kDigitBits = 32;
constexpr uint64_t kDigitMask = 0xffffffffu;
// The unit of the last digit: the square of the least subnormal float, 2^-149.
constexpr int kUnitExponent = -298;

// Squares are first added up by exponent. Neighbours in memory often have the same exponent, so
// several tables take turns and no addition waits for the one before it.
constexpr int kTables = 4;
constexpr int kExponents = 256;
constexpr int kNonfiniteExponent = 255;
// A squared significand is below 2^48, so a 64-bit entry holds this many without overflow.
constexpr int64_t kBlock = int64_t{kTables} << 16;

__extension__ using Uint128 = unsigned __int128;

// Passes on what each digit has above 32 bits. Returns what is left at the end: 0 unless the sum is
// too large for the digits.
uint64_t Carry(absl::Span<uint64_t> digits) {
  uint64_t carry = 0;
  for (uint64_t& digit : digits) {
    // Digits are below 2^63 and the carry below 2^32: no overflow.
    digit += carry;
    carry = digit >> kDigitBits;
    digit &= kDigitMask;
  }
  return carry;
}

void AddToTable(float value, uint64_t* table) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t exponent = (bits >> 23) & 0xff;
  const uint64_t significand = (bits & 0x7fffff) | (uint32_t{exponent != 0} << 23);
  table[exponent] += significand * significand;
}

}  // namespace

void SquaredSum::Add(absl::Span<const float> values) {
  while (!values.empty()) {
    const absl::Span<const float> block = values.subspan(0, kBlock);
    values.remove_prefix(block.size());

    uint64_t tables[kTables][kExponents] = {};
    size_t i = 0;
    for (; i + kTables <= block.size(); i += kTables) {
      for (int table = 0; table < kTables; ++table) AddToTable(block[i + table], tables[table]);
    }
    for (; i < block.size(); ++i) AddToTable(block[i], tables[0]);

    for (int exponent = 0; exponent < kExponents; ++exponent) {
      Uint128 sum = 0;
      for (const auto& table : tables) sum += table[exponent];
      if (sum == 0) continue;
      if (exponent == kNonfiniteExponent) {
        nonfinite_ = 1;
        continue;
      }
      // A subnormal (exponent 0) has the unit of exponent 1.
      const int position = 2 * (std::max(exponent, 1) - 1);
      sum <<= position % kDigitBits;
      for (int digit = position / kDigitBits; sum != 0; ++digit, sum >>= kDigitBits) {
        digits_[digit] += static_cast<uint64_t>(sum) & kDigitMask;
      }
    }
    Normalize();
  }
}

void SquaredSum::Merge(const SquaredSum& other) {
  for (int i = 0; i < kDigits; ++i) digits_[i] += other.digits_[i];
  nonfinite_ |= other.nonfinite_;
  Normalize();
}

void SquaredSum::Normalize() { Carry(absl::MakeSpan(digits_)); }

double SquaredSum::Value() const {
  if (!finite()) return std::numeric_limits<double>::quiet_NaN();
  int top = kDigits - 1;
  while (top >= 0 && digits_[top] == 0) --top;
  if (top < 0) return 0;
  // The three leading digits hold at least 65 significant bits. What lies below can only tell a tie
  // from more than a tie, and that is what the last bit is for.
  constexpr int kLeading = 3;
  Uint128 leading = 0;
  for (int i = 0; i < kLeading; ++i) {
    leading = leading << kDigitBits | (top - i >= 0 ? digits_[top - i] : 0);
  }
  for (int i = top - kLeading; i >= 0; --i) {
    if (digits_[i] != 0) leading |= 1;
  }
  return std::ldexp(static_cast<double>(leading),
                    kDigitBits * (top - kLeading + 1) + kUnitExponent);
}

SquaredSum::Words SquaredSum::ToWords() const {
  Words words;
  for (int i = 0; i < kDigits; ++i) words[i] = static_cast<int64_t>(digits_[i]);
  words[kDigits] = nonfinite_;
  return words;
}

absl::StatusOr<SquaredSum> SquaredSum::FromWords(absl::Span<const int64_t> words) {
  if (words.size() != kWords) {
    return absl::InvalidArgumentError(
        absl::StrFormat("squared sum: expected %d words, got %d", kWords, words.size()));
  }
  SquaredSum sum;
  for (int i = 0; i < kWords; ++i) {
    if (words[i] < 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("squared sum: word %d is negative (%d)", i, words[i]));
    }
    if (i < kDigits) sum.digits_[i] = static_cast<uint64_t>(words[i]);
  }
  sum.nonfinite_ = words[kDigits] != 0 ? 1 : 0;
  if (Carry(absl::MakeSpan(sum.digits_)) != 0) {
    return absl::InvalidArgumentError("squared sum: too large to be a sum of squares of floats");
  }
  return sum;
}

}  // namespace muster
