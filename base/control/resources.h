// What members tell of what they have and of what a job needs, by which the coordinator chooses a
// strategy where the job leaves that to it (server/core/choose_strategy.h). Plain values.
#ifndef MUSTER_BASE_CONTROL_RESOURCES_H_
#define MUSTER_BASE_CONTROL_RESOURCES_H_

#include <cstdint>

namespace muster {

// Memory for parameters, gradients, the optimizer's state and the buffers of a step. 0: not known.
struct MemoryBudget {
  int64_t process_bytes = 0;  // of this process, whatever others take
  int64_t host_bytes = 0;     // what the host had when this process started, for all its members
  bool operator==(const MemoryBudget&) const = default;
};

// What of a job decides how much memory and traffic its strategies take. The same on all members.
struct StateSize {
  int64_t elements = 0;         // parameters, padded
  int64_t largest_block = 0;    // of them, in the largest block of the model
  int32_t gathered_blocks = 3;  // parameters of so many are here at a time where they are in shards
  int64_t bucket = 0;           // elements that are reduced together
  int32_t slots = 0;            // of the optimizer for each element, in f32
  int32_t parameter_bytes = 4;
  int32_t gradient_bytes = 4;
  int32_t micro_batches = 1;  // of a step, over all workers
  int32_t carried_bytes = 0;  // for each element, of what a worker's compressed gradients lack
  bool operator==(const StateSize&) const = default;
};

// The mesh of a view, as measured for vectors of a bucket's size (collectives/model/link_model.h).
struct LinkSpeeds {
  int32_t ranks = 0;
  double latency_seconds = 0;
  double message_seconds = 0;
  // For each byte that a rank sends while it receives as much, and while it receives nothing (or
  // the reverse). Half of the former where both directions share what limits them, as much where
  // they do not.
  double wire_seconds = 0;
  double one_way_seconds = 0;
  double reduce_seconds = 0;  // for each byte added
  // Where all ranks share memory: of a meet, and for each byte read or written. 0: they do not.
  double meet_seconds = 0;
  double shared_seconds = 0;
  bool operator==(const LinkSpeeds&) const = default;
};

}  // namespace muster

#endif  // MUSTER_BASE_CONTROL_RESOURCES_H_
