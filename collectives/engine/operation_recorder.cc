#include "collectives/engine/operation_recorder.h"

#include <algorithm>
#include <utility>

namespace muster {
namespace {

OperationState StateOf(const Operation& operation) {
  if (operation.done)
    return operation.status.ok() ? OperationState::kDone : OperationState::kFailed;
  return operation.started_at == absl::InfiniteFuture() ? OperationState::kQueued
                                                        : OperationState::kRunning;
}

}  // namespace

const char* Name(OperationState state) {
  switch (state) {
    case OperationState::kQueued:
      return "queued";
    case OperationState::kRunning:
      return "running";
    case OperationState::kDone:
      return "done";
    case OperationState::kFailed:
      return "failed";
  }
  return "unknown";
}

void OperationRecorder::Add(std::shared_ptr<const Operation> operation) {
  if (ring_.size() < kCapacity) {
    ring_.push_back(std::move(operation));
  } else {
    ring_[added_ % kCapacity] = std::move(operation);
  }
  ++added_;
}

std::vector<OperationRecord> OperationRecorder::Records() const {
  std::vector<OperationRecord> records;
  for (uint64_t number = added_ - ring_.size(); number < added_; ++number) {
    const Operation& operation = *ring_[number % kCapacity];
    OperationRecord& record = records.emplace_back();
    record.number = number;
    record.what = Describe(operation.fingerprint);
    record.label = operation.label;
    record.step = operation.step;
    record.state = StateOf(operation);
    record.issued_at = operation.issued_at;
    record.started_at = operation.started_at;
    record.ended_at = operation.ended_at;
    if (record.state == OperationState::kFailed) record.status = operation.status;
  }
  return records;
}

}  // namespace muster
