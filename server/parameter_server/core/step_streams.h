// How far each micro-batch has come in a table that applies pushes on arrival: what it remembers so
// that each push counts once, one number per micro-batch, since its steps come in order. It is part
// of snapshots.
//
// Thread-compatible.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_CORE_STEP_STREAMS_H_
#define MUSTER_SERVER_PARAMETER_SERVER_CORE_STEP_STREAMS_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "base/ids.h"
#include "server/parameter_server/core/contributions.h"
#include "server/parameter_server/core/contributors.h"

namespace muster {

class StepStreams {
 public:
  static constexpr Step kNobody = std::numeric_limits<Step>::max();

  explicit StepStreams(const Contributions& contributions);

  // The last step applied; 0 before the first.
  Step applied(int32_t micro_batch) const { return applied_[micro_batch]; }
  // Requires: step > applied(micro_batch).
  void SetApplied(int32_t micro_batch, Step step);
  // The last step of which all of the contributor's micro-batches are applied; kNobody if it has
  // none.
  Step StepOf(int32_t contributor) const;
  // The least of those who are attached; kNobody if nobody counts.
  Step Slowest(const Contributors& contributors) const;
  // Lets the contributor's micro-batches go on at the step after `step`: those before count as
  // applied.
  void SkipTo(int32_t contributor, Step step);

  const std::vector<Step>& applied_steps() const { return applied_; }
  // Requires: one for each micro-batch.
  void Restore(std::vector<Step> applied);

 private:
  Contributions contributions_;
  std::vector<Step> applied_;
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_CORE_STEP_STREAMS_H_
