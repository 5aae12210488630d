#include "base/random.h"

#include <cmath>

namespace muster {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;

uint64_t Mix(uint64_t x) {
  // The finaliser of MurmurHash3.
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  x ^= x >> 33;
  return x;
}

}  // namespace

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key.low,
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key.high,
               static_cast<uint32_t>(product0)};
    key.low += kWeyl0;
    key.high += kWeyl1;
  }
  return counter;
}

uint64_t StableHash(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3ULL;
  }
  return Mix(hash);
}

RandomStream::RandomStream(uint64_t seed, absl::string_view purpose, uint64_t a, uint64_t b) {
  const uint64_t key = Mix(seed ^ StableHash(purpose));
  const uint64_t salt = Mix(Mix(key + 0x9E3779B97F4A7C15ULL + a) ^ (b * 0xD1B54A32D192ED03ULL + 1));
  const uint64_t mixed = Mix(key ^ salt);
  key_ = {static_cast<uint32_t>(mixed), static_cast<uint32_t>(mixed >> 32)};
  salt_low_ = static_cast<uint32_t>(salt);
  salt_high_ = static_cast<uint32_t>(salt >> 32);
}

uint64_t RandomStream::Bits(uint64_t index) const {
  // One block of four words serves two indices.
  const uint64_t block = index >> 1;
  const auto words = Philox(
      {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), salt_low_, salt_high_},
      key_);
  const int first = (index & 1) ? 2 : 0;
  return uint64_t{words[first]} | uint64_t{words[first + 1]} << 32;
}

double RandomStream::Uniform(uint64_t index) const {
  return static_cast<double>(Bits(index) >> 11) * 0x1p-53;
}

float RandomStream::UniformFloat(uint64_t index) const {
  return static_cast<float>(Bits(index) >> 40) * 0x1p-24f;
}

double RandomStream::Normal(uint64_t index) const {
  const uint64_t bits = Bits(index);
  // Two uniforms of 32 bits each; the first is kept away from zero for the logarithm.
  const double u = (static_cast<double>(bits & 0xffffffffu) + 0.5) * 0x1p-32;
  const double v = static_cast<double>(bits >> 32) * 0x1p-32;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586476925 * v);
}

uint64_t RandomStream::Below(uint64_t index, uint64_t bound) const {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(Bits(index)) * bound) >> 64);
}

}  // namespace muster
