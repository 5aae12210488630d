// Finds out how long the operation at the front of a communicator has stood still.
//
// Pure: time comes in as an argument. Used by one thread at a time, the one that drives.
#ifndef MUSTER_COLLECTIVES_ENGINE_WAIT_WATCH_H_
#define MUSTER_COLLECTIVES_ENGINE_WAIT_WATCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"

namespace muster {

// An operation that waits for its peers, and has not moved meanwhile.
struct OperationWait {
  std::string what;  // collective, place in its scope, type, elements, algorithm
  std::string label;
  Step step = 0;
  std::vector<Rank> waits_for;  // ranks of the mesh; the ones known to be behind now
  absl::Duration waited;        // without any progress
  bool over = false;            // it has gone on, or has failed, after `waited`
};

class WaitWatch {
 public:
  // A wait is worth a word after `interval`, and again every so often.
  explicit WaitWatch(absl::Duration interval) : interval_(interval) {}

  enum class Verdict : uint8_t {
    kNothing,
    kStands,  // still, for waited()
    kOver,    // one that was reported is over, after waited()
  };
  // `moves` changes whenever an operation moves on or starts; one is under way.
  Verdict Look(uint64_t moves, absl::Time now) {
    if (!looked_ || moves_ != moves) {
      const Verdict verdict = End(now);
      looked_ = true;
      moves_ = moves;
      since_ = now;
      next_look_ = now + interval_;
      return verdict;
    }
    if (now < next_look_) return Verdict::kNothing;
    reported_ = true;
    waited_ = now - since_;
    next_look_ = now + interval_;
    return Verdict::kStands;
  }
  // The front is another one now, or nothing is under way any more.
  Verdict End(absl::Time now) {
    if (!reported_) return Verdict::kNothing;
    reported_ = false;
    waited_ = now - since_;
    return Verdict::kOver;
  }

  bool reported() const { return reported_; }
  uint64_t moves() const { return moves_; }  // of the last Look
  absl::Duration waited() const { return waited_; }
  // By when to look again, after Look.
  absl::Time next_look() const { return next_look_; }

 private:
  const absl::Duration interval_;
  bool looked_ = false;
  uint64_t moves_ = 0;
  absl::Time since_;
  absl::Time next_look_;
  absl::Duration waited_;
  bool reported_ = false;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_ENGINE_WAIT_WATCH_H_
