// Who holds up a view: from what each rank waits for to the ranks at the end of these waits.
//
// In a ring rank 3 waits for 2, rank 0 for 3, rank 1 for 0: each names its neighbour, and only all
// reports together show that rank 2 is to blame. A rank at the end waits for nobody: it is busy, or
// nothing is heard of it. Where there is no end, ranks wait in a circle, and what one of them sent
// does not arrive. Measurements for people, on which nothing is decided. Pure.
#ifndef MUSTER_SERVER_CORE_STRAGGLER_H_
#define MUSTER_SERVER_CORE_STRAGGLER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/control/communication.h"
#include "base/ids.h"

namespace muster {

// What is known of one rank of the view in force.
struct RankReport {
  WorkerName worker;
  absl::Time heard_at = absl::InfinitePast();
  std::optional<CollectiveWait> wait;  // as of heard_at; none: it waits for nobody
};

struct StragglerOptions {
  // Of a rank not heard of for so long nothing is known.
  absl::Duration silent_after = absl::Milliseconds(750);
  // Who waits says so within this much time. A rank that has said nothing of it for longer since
  // another began to wait for it does not wait.
  absl::Duration settle = absl::Milliseconds(250);
};

struct Straggler {
  enum class Cause : uint8_t {
    kBusy = 1,    // it lives and waits for nobody: it has not come to the collective
    kSilent = 2,  // nothing is heard of it
    kLink = 3,    // it waits as well, in a circle
  };
  Rank rank = -1;
  WorkerName worker;
  Cause cause = Cause::kBusy;
  // The operation that has waited longest for it, on rank `waiter`.
  std::string operation;
  std::string label;
  Step step = 0;
  Rank waiter = -1;
  absl::Duration held_up;
  absl::Duration unheard;     // since it was heard of last
  std::vector<Rank> waiting;  // by way of others included; ascending
};

// Who holds up ranks whose collectives are late, longest first. Each rank that is late either has
// one here, or it is not yet known who it is. `ranks` in rank order.
std::vector<Straggler> FindStragglers(absl::Span<const RankReport> ranks,
                                      const StragglerOptions& options, absl::Time now);

// "worker-2 (rank 2) holds up 3 ranks: 'bucket 3' of step 17 has waited 1.2 s for it on rank 3
// (all-reduce #5 (...)); nothing has been heard of it for 1.3 s, so that ...".
std::string Describe(const Straggler& straggler);

// Makes events of what FindStragglers finds from time to time. A copyable value, not thread-safe.
class StragglerWatch {
 public:
  // A worker that is a straggler again and again has a line at most this often.
  static constexpr absl::Duration kLineInterval = absl::Seconds(10);

  struct Event {
    bool over = false;
    Straggler straggler;       // as it was found last
    absl::Duration lasted;     // since the operation began to wait for it
    bool has_line = true;      // worth a line in the log; its end is exactly if its begin was
    int64_t without_line = 0;  // of the worker, since its last line; at a begin with one
  };
  std::vector<Event> Update(std::vector<Straggler> found, absl::Time now);

  // Longest first.
  const std::vector<Straggler>& current() const { return current_; }

 private:
  struct Open {
    Straggler straggler;
    absl::Time since;
    bool has_line = true;
  };
  struct Line {
    absl::Time at;
    int64_t without = 0;
  };
  std::map<WorkerName, Open> open_;
  std::map<WorkerName, Line> lines_;  // of late
  std::vector<Straggler> current_;
};

}  // namespace muster

#endif  // MUSTER_SERVER_CORE_STRAGGLER_H_
