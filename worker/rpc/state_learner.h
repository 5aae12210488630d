// Receives the training state from a live worker, on a thread of its own.
//
// Everything that arrives is checked before the sink sees it: order, bounds, finite limits and the
// CRC-32C of each chunk. Memory is bounded by what the learner expects, not by what the source
// says.
#ifndef MUSTER_WORKER_RPC_STATE_LEARNER_H_
#define MUSTER_WORKER_RPC_STATE_LEARNER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/control/messages.h"
#include "worker/rpc/state_source.h"

namespace muster {

// Called from the learner's thread, one call at a time, in the order below. An error returned by
// the sink ends the transfer and comes back through OnEnded.
class StateSink {
 public:
  virtual ~StateSink() = default;
  virtual absl::Status OnHeader(const SnapshotHeader& header) = 0;
  // Elements [offset, offset + values.size()) of one array, in order, without gaps.
  virtual absl::Status OnSnapshotChunk(int array, int64_t offset,
                                       absl::Span<const float> values) = 0;
  // Every element of every array has come.
  virtual absl::Status OnSnapshotDone() = 0;
  // Step after step, without gaps, the first being header.tag.step + 1. item.gradient is not null.
  virtual absl::Status OnStep(StepItem item) = 0;
  virtual absl::Status OnStable(const StateTag& stable) = 0;
  // Last call, always and once. CANCELLED after Cancel; UNAVAILABLE if the source is lost;
  // DATA_LOSS for a bad checksum or order; otherwise what the source or the sink answered. Never
  // OK: a source that ends the stream without a reason is UNAVAILABLE.
  virtual void OnEnded(const absl::Status& reason) = 0;
};

struct StateLearnerOptions {
  std::string source_address;  // the source's rpc_address
  LearnRequest request;
  int32_t expected_array_count = 0;
  int64_t expected_array_elements = 0;
  // Longest silence accepted while connecting and during the snapshot. Afterwards only a lost
  // connection ends the transfer: a fleet on hold makes no steps.
  absl::Duration silence_timeout = absl::Seconds(10);
};

class StateLearner {
 public:
  // Starts at once. `sink` must outlive the learner.
  StateLearner(StateLearnerOptions options, StateSink& sink);
  // Cancels and waits until OnEnded has returned. Not from the sink.
  ~StateLearner();

  // Thread-safe, does not wait, may be called from the sink.
  void Cancel();

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_RPC_STATE_LEARNER_H_
