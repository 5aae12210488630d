// The last operations of a communicator, for finding out afterwards what a rank was doing.
//
// A ring of references: recording costs no copy. Thread-compatible: called under the communicator's
// lock, under which also the operations' times and outcomes are written.
#ifndef MUSTER_COLLECTIVES_ENGINE_OPERATION_RECORDER_H_
#define MUSTER_COLLECTIVES_ENGINE_OPERATION_RECORDER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/engine/operation.h"
#include "collectives/engine/operation_record.h"

namespace muster {

class OperationRecorder {
 public:
  static constexpr size_t kCapacity = 1024;

  void Add(std::shared_ptr<const Operation> operation);
  // Oldest first.
  std::vector<OperationRecord> Records() const;

 private:
  uint64_t added_ = 0;
  std::vector<std::shared_ptr<const Operation>> ring_;  // operation n at n % kCapacity
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_ENGINE_OPERATION_RECORDER_H_
