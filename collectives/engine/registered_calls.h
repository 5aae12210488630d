// Which kinds of calls are made with registered buffers on all ranks: those that were the last
// time. What small calls go by before they have heard from the others.
//
// The same on all ranks, if all note the same outcomes in the same order. Not thread-safe.
#ifndef MUSTER_COLLECTIVES_ENGINE_REGISTERED_CALLS_H_
#define MUSTER_COLLECTIVES_ENGINE_REGISTERED_CALLS_H_

#include <cstddef>

#include "absl/container/flat_hash_set.h"
#include "collectives/engine/fingerprint.h"

namespace muster {

class RegisteredCalls {
 public:
  // Of more kinds than this all are forgotten.
  static constexpr size_t kMostKinds = 1024;

  bool Contains(const Fingerprint& call) const { return kinds_.contains(KindOf(call)); }
  // A call of that kind is done; needs to be told only where it is news.
  void Note(const Fingerprint& call, bool registered) {
    if (!registered) {
      kinds_.erase(KindOf(call));
      return;
    }
    if (kinds_.size() >= kMostKinds && !Contains(call)) kinds_.clear();
    kinds_.insert(KindOf(call));
  }

 private:
  // All but the place in the sequence.
  static Fingerprint KindOf(Fingerprint call) {
    call.sequence = 0;
    return call;
  }

  absl::flat_hash_set<Fingerprint> kinds_;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_ENGINE_REGISTERED_CALLS_H_
