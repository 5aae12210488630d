// What a rank called, in the form in which ranks compare it. Pure values and functions,
// thread-safe.
#ifndef MUSTER_COLLECTIVES_ENGINE_FINGERPRINT_H_
#define MUSTER_COLLECTIVES_ENGINE_FINGERPRINT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/ids.h"

namespace muster {

inline constexpr int kFingerprintBytes = 48;

// Enumerations are kept as their wire numbers: what a peer sent need not be valid to be compared.
struct Fingerprint {
  uint64_t sequence = 0;  // of the call in its scope, from 1
  uint8_t collective = 0;
  uint8_t algorithm = 0;
  uint8_t dtype = 0;
  uint8_t op = 0;            // 0 where nothing is reduced
  Rank root = 0;             // of a push or pull the number of contributors
  int64_t count = 0;         // elements of the whole vector
  uint64_t counts_hash = 0;  // of the parts, their order and hosts, where they are given
  int64_t segment_bytes = 0;
  // Who counts the sequence: 0 all ranks, a pair (ScopeOfPair), or a subgroup's number.
  uint64_t scope = 0;
  bool operator==(const Fingerprint&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const Fingerprint& f) {
    return H::combine(std::move(h), f.sequence, f.collective, f.algorithm, f.dtype, f.op, f.root,
                      f.count, f.counts_hash, f.segment_bytes, f.scope);
  }
};

// Sends from one rank of the mesh to another count by themselves, since other ranks know nothing of
// them.
inline constexpr uint64_t kPairScope = uint64_t{1} << 63;
inline uint64_t ScopeOfPair(Rank from, Rank to) {
  return kPairScope | (static_cast<uint64_t>(from) << 16) | static_cast<uint64_t>(to);
}

std::array<std::byte, kFingerprintBytes> EncodeFingerprint(const Fingerprint& fingerprint);
Fingerprint DecodeFingerprint(absl::Span<const std::byte> bytes);

// "all-reduce #5 (f32, sum, 1024 elements, ring)".
std::string Describe(const Fingerprint& fingerprint);

// The error of two ranks that called different things.
absl::Status MismatchedCalls(const Fingerprint& ours, Rank our_rank, const Fingerprint& theirs,
                             Rank their_rank);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_ENGINE_FINGERPRINT_H_
