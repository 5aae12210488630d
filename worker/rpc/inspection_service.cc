#include "worker/rpc/inspection_service.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "base/text.h"
#include "proto/convert/control.h"
#include "proto/convert/field.h"
#include "proto/rpc/status.h"

namespace muster {
namespace {

// 1,024 operations of these take less than half of what a message may.
constexpr size_t kMaxWhatBytes = 300;
constexpr size_t kMaxLabelBytes = 100;
constexpr size_t kMaxErrorBytes = 1'000;

v1::Operation::State ToProto(OperationState state) {
  switch (state) {
    case OperationState::kQueued:
      return v1::Operation::QUEUED;
    case OperationState::kRunning:
      return v1::Operation::RUNNING;
    case OperationState::kDone:
      return v1::Operation::DONE;
    case OperationState::kFailed:
      return v1::Operation::FAILED;
  }
  return v1::Operation::STATE_UNSPECIFIED;
}

}  // namespace

v1::WorkerOperations ToProto(const MeshRecord& record, absl::Time now) {
  v1::WorkerOperations proto;
  proto.set_epoch(record.epoch);
  for (const OperationRecord& operation : record.operations) {
    v1::Operation& added = *proto.add_operations();
    added.set_number(operation.number);
    added.set_what(TextForPeople(operation.what, kMaxWhatBytes));
    added.set_label(TextForPeople(operation.label, kMaxLabelBytes));
    added.set_step(operation.step);
    added.set_state(ToProto(operation.state));
    const int64_t issued_us = absl::ToUnixMicros(operation.issued_at);
    added.mutable_issued()->set_seconds(issued_us / 1'000'000);
    added.mutable_issued()->set_nanos(static_cast<int32_t>(issued_us % 1'000'000) * 1'000);
    const absl::Time ended = std::min(operation.ended_at, now);
    added.set_queued_us(
        absl::ToDoubleMicroseconds(std::min(operation.started_at, ended) - operation.issued_at));
    if (operation.started_at != absl::InfiniteFuture()) {
      added.set_running_us(absl::ToDoubleMicroseconds(ended - operation.started_at));
    }
    if (!operation.status.ok()) {
      added.set_error(TextForPeople(operation.status.ToString(), kMaxErrorBytes));
    }
  }
  return proto;
}

grpc::Status InspectionService::ListOperations(grpc::ServerContext* /*context*/,
                                               const v1::ListOperationsRequest* request,
                                               v1::ListOperationsResponse* response) {
  if (absl::Status status = CheckText("job_id", request->job_id(), kMaxIdBytes); !status.ok()) {
    return ToGrpcStatus(status);
  }
  const absl::StatusOr<MeshRecord> record =
      source_.RecentOperations(Incarnation{request->incarnation()}, request->job_id());
  if (record.ok()) *response->mutable_operations() = ToProto(*record, absl::Now());
  return ToGrpcStatus(record.status());
}

}  // namespace muster
