// Takes apart what the source of a state sends: checks each message's form, order, bounds and
// checksum, and hands it to the sink. Not thread-safe.
//
// Errors are DATA_LOSS for what a source must not send, otherwise what the sink answered. Memory is
// bounded by what the learner expects, not by what the source says.
#ifndef MUSTER_WORKER_RPC_TRANSFER_RECEIVER_H_
#define MUSTER_WORKER_RPC_TRANSFER_RECEIVER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "muster/v1/worker.pb.h"
#include "worker/rpc/state_learner.h"

namespace muster {

class TransferReceiver {
 public:
  // Both must outlive the receiver.
  TransferReceiver(const StateLearnerOptions& options, StateSink& sink)
      : options_(options), sink_(sink) {}

  // The next message. After an error no more may come.
  absl::Status Take(const v1::LearnResponse& response);

  bool snapshot_done() const { return snapshot_done_; }

 private:
  int64_t elements() const { return options_.expected_array_elements; }
  absl::Status TakeHeader(const v1::SnapshotHeader& proto);
  absl::Status TakeSnapshot(const v1::SnapshotChunk& chunk);
  absl::Status FinishSnapshotIfComplete();
  absl::Status TakeGradient(const v1::GradientChunk& chunk);
  absl::Status TakeRecord(const v1::StepRecord& record);
  absl::Status TakeStable(const v1::StateTag& proto);
  absl::Status TooMuch(int64_t count) const;

  const StateLearnerOptions& options_;
  StateSink& sink_;
  bool has_header_ = false;
  bool snapshot_done_ = false;
  int32_t array_ = 0;   // next expected
  int64_t offset_ = 0;  // next expected, in array_ or in gradient_
  Step next_step_ = 0;
  std::vector<float> values_;
  std::shared_ptr<std::vector<float>> gradient_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_RPC_TRANSFER_RECEIVER_H_
