// Counter-based random numbers: a pure function of a key and a counter, so that a value depends on
// what it is for (parameter and element; step, sample and layer) and never on who draws it or when.
//
// Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3",
// SC 2011, section 3.3. Every function is pure and thread-safe.
#ifndef MUSTER_BASE_RANDOM_H_
#define MUSTER_BASE_RANDOM_H_

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace muster {

struct PhiloxKey {
  uint32_t low = 0;
  uint32_t high = 0;
};

// Ten rounds of Philox4x32 over `counter` under `key`.
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, PhiloxKey key);

// A 64-bit hash of text that is the same on every platform (FNV-1a, then a finaliser). For deriving
// keys from names; not for untrusted input.
uint64_t StableHash(absl::string_view text);

// One stream of numbers, named by (seed, purpose, a, b). Element i of the stream is independent of
// every other; reading it has no state.
class RandomStream {
 public:
  RandomStream(uint64_t seed, absl::string_view purpose, uint64_t a = 0, uint64_t b = 0);

  uint64_t Bits(uint64_t index) const;                   // 64 uniform bits
  double Uniform(uint64_t index) const;                  // [0, 1), 53 bits
  float UniformFloat(uint64_t index) const;              // [0, 1), 24 bits
  double Normal(uint64_t index) const;                   // mean 0, variance 1 (Box-Muller)
  uint64_t Below(uint64_t index, uint64_t bound) const;  // [0, bound), bound > 0

 private:
  PhiloxKey key_;
  uint32_t salt_low_;
  uint32_t salt_high_;
};

}  // namespace muster

#endif  // MUSTER_BASE_RANDOM_H_
