// What a run came to. Collects a job's states and gives the summary as a table for people and as
// JSON for scripts. Thread-compatible.
#ifndef MUSTER_CLIENT_SUMMARY_H_
#define MUSTER_CLIENT_SUMMARY_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "muster/v1/coordinator.pb.h"

namespace muster {

class RunSummary {
 public:
  // Each state of the job, in order. A job shows only its newest view changes; this keeps them all.
  void Update(const v1::Job& job);

  // {"job", "steps", "final_loss", "test_accuracy", "view_changes": [{"epoch", "cause": "death" |
  // "join" | "leave" | "drain" | "switch" | "restart", "worker", "duration_ms"}], "step_ms_p50",
  // "step_ms_p99", "comm_wait_share", "checkpoint", "parameters_sha256"}. The first view is no
  // change. "worker": several are separated by commas. What is not known (the job failed, no step
  // followed a change, there is no test set, no checkpoint was asked for) is null; so is a number
  // that is not finite.
  std::string Json() const;

  // Several lines.
  std::string Text(absl::Duration elapsed) const;

 private:
  // At the end, or as far as the job came.
  const v1::Progress& progress() const;

  v1::Job job_;
  std::map<uint64_t, v1::ViewChange> changes_;  // by epoch
};

}  // namespace muster

#endif  // MUSTER_CLIENT_SUMMARY_H_
