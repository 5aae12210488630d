// Where a learner's state comes from: what the worker's server asks of the worker that runs a job.
//
// The server calls Open and then reads the feed from one thread per learner; a feed is used by one
// thread at a time and is destroyed on it. Sending is slow, so a feed must not hold up training: it
// hands out an immutable snapshot and buffers later steps within a limit of its own, beyond which
// it ends with RESOURCE_EXHAUSTED (the learner starts again).
#ifndef MUSTER_WORKER_RPC_STATE_SOURCE_H_
#define MUSTER_WORKER_RPC_STATE_SOURCE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/control/messages.h"

namespace muster {

// Who asks for what. Both incarnations, the job and the layout fence the transfer (rule 10).
struct LearnRequest {
  JobId job;
  std::string fleet_id;
  Incarnation learner;
  Incarnation source;
  uint64_t layout_fingerprint = 0;
};

// What a snapshot holds.
struct SnapshotHeader {
  StateTag tag;
  int64_t update_count = 0;
  int32_t nonfinite_in_row = 0;
  int64_t skipped_steps = 0;
  int32_t array_count = 0;     // parameters, then the optimizer's slots
  int64_t array_elements = 0;  // of each array: the layout's padded count
  bool operator==(const SnapshotHeader&) const = default;
};

// A step that the source has committed after the snapshot.
struct StepItem {
  CommitRecord record;
  StateTag tag;     // after applying it
  StateTag stable;  // newest state the source knows to be stable
  // The sum over contributors, array_elements long.
  std::shared_ptr<const std::vector<float>> gradient;
};

// Only the stable tag has moved on.
struct StableItem {
  StateTag stable;
};

using FeedItem = std::variant<StepItem, StableItem>;

class StateFeed {
 public:
  virtual ~StateFeed() = default;
  virtual const SnapshotHeader& header() const = 0;
  // Array `index` < array_count, array_elements long; unchanged for the life of the feed.
  virtual absl::Span<const float> Array(int index) const = 0;
  // Waits for the next item: steps in order, each once, the first being tag.step + 1. Nothing if
  // `deadline` passes first. An error ends the feed and is told to the learner.
  virtual absl::StatusOr<std::optional<FeedItem>> Next(absl::Time deadline) = 0;
};

class StateSource {
 public:
  virtual ~StateSource() = default;
  // FAILED_PRECONDITION if the incarnations, the job, the fleet or the layout are not this
  // worker's. Thread-safe.
  virtual absl::StatusOr<std::unique_ptr<StateFeed>> Open(const LearnRequest& request) = 0;
};

}  // namespace muster

#endif  // MUSTER_WORKER_RPC_STATE_SOURCE_H_
