// A reshard plan cut into messages, and the order in which everybody sends and receives them. Pure.
//
// Order. All messages of a plan stand in one order: by their number within their pair, then by the
// distance from sender to receiver, then by sender. Each participant handles its own in that order.
// So nobody waits in a circle, even if each does one thing at a time: the first message that is not
// done is the next one for both of its ends. And no pair waits until another is done with all it
// has to say: a participant sends to and receives from many in turn.
#ifndef MUSTER_STATE_MOVE_CHUNKS_H_
#define MUSTER_STATE_MOVE_CHUNKS_H_

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "state/range.h"
#include "state/reshard_plan.h"

namespace muster {

// A message as one of its ends sees it.
struct MoveChunk {
  Rank peer = 0;
  bool is_sent = false;  // else received
  std::vector<Range> ranges;
  int64_t element_count = 0;  // of all ranges
  bool operator==(const MoveChunk&) const = default;
};

// Those that `self` sends or receives, in order, each of at most `chunk_elements` elements.
// Requires: chunk_elements >= 1.
std::vector<MoveChunk> ChunksOf(const ReshardPlan& plan, Rank self, int64_t chunk_elements);

}  // namespace muster

#endif  // MUSTER_STATE_MOVE_CHUNKS_H_
