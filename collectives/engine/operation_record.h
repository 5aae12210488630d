// What is known of one past or present operation of a communicator. Plain value.
#ifndef MUSTER_COLLECTIVES_ENGINE_OPERATION_RECORD_H_
#define MUSTER_COLLECTIVES_ENGINE_OPERATION_RECORD_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"

namespace muster {

enum class OperationState : uint8_t { kQueued, kRunning, kDone, kFailed };
const char* Name(OperationState state);

struct OperationRecord {
  uint64_t number = 0;  // of all operations of the communicator and its subgroups, from 0
  std::string what;     // collective, place in its scope, type, elements, algorithm
  std::string label;
  Step step = 0;
  OperationState state = OperationState::kQueued;
  absl::Time issued_at;
  // InfiniteFuture: not yet.
  absl::Time started_at = absl::InfiniteFuture();
  absl::Time ended_at = absl::InfiniteFuture();
  absl::Status status;  // why it failed
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_ENGINE_OPERATION_RECORD_H_
