// What a checkpoint keeps of a job, and the part of it that one of its writers has: a view onto
// memory of that worker.
#ifndef MUSTER_WORKER_CHECKPOINT_TRAINING_STATE_H_
#define MUSTER_WORKER_CHECKPOINT_TRAINING_STATE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "base/sha256.h"
#include "state/layout.h"

namespace muster {

// The scalar part. (branch, step, epoch) is the state's tag: `epoch` is the view's that reduced the
// gradient of `step`, 0 for the initial state.
struct TrainingProgress {
  Step step = 0;
  uint64_t branch = 0;
  Epoch epoch = 0;
  int64_t update_count = 0;      // updates applied: steps less those skipped as not finite
  int64_t nonfinite_in_row = 0;  // steps skipped since the last update
  uint64_t seed = 0;
  std::string job;               // the job description as text (YAML or JSON), UTF-8
  uint64_t job_fingerprint = 0;  // of what must not change between runs of the job
  bool operator==(const TrainingProgress&) const = default;
};

// One optimizer value per parameter, in the flat space of the layout: "momentum_buffer",
// "exp_avg". Of frozen tensors, which have none, nothing is written, and zeros are read.
struct OptimizerSlot {
  std::string name;  // not empty, without '.'
  absl::Span<const float> values;
};

// Which of the parts that several workers write of one checkpoint. They agree on all but `index`;
// part 0's writer publishes the whole. part_plan.h says what is in a part.
struct CheckpointPart {
  int index = 0;
  int count = 1;
  Incarnation publisher;  // of several
  Epoch view = 0;         // in which they write; keeps attempts apart
};

// Borrowed: the spans must not change while a checkpoint is written from it.
struct TrainingState {
  TrainingProgress progress;
  const Layout* layout = nullptr;
  CheckpointPart part;
  absl::Span<const float> parameters;  // of the part's range, as is every slot
  std::vector<OptimizerSlot> slots;
};

// Takes elements of the flat space in, from `offset` on.
using PieceSink = std::function<void(int64_t offset, absl::Span<const float> values)>;

// Where Load puts a slot.
struct OptimizerSlotDestination {
  std::string name;
  PieceSink take;
};

// SHA-256 (hexadecimal) of each tensor's little-endian f32 bytes, by name.
using TensorDigests = std::map<std::string, std::string>;

// The SHA-256 of all parameters: over a line "<digest>  <name>\n" for each tensor, by name. So it
// is made of parts, and says nothing of the layout.
std::string CombineDigests(const TensorDigests& digests);

// That of a flat space. Requires: parameters.size() == layout.padded_count().
std::string ParametersSha256(const Layout& layout, absl::Span<const float> parameters);

// The same, block by block from block 0 on. `layout` must outlive the object.
class ParametersHash {
 public:
  explicit ParametersHash(const Layout& layout) : layout_(layout) {}
  // `parameters`: of Layout::RangeOfBlock(block).
  void AddBlock(int block, const float* parameters);
  std::string HexDigest() const { return CombineDigests(digests_); }

 private:
  const Layout& layout_;
  size_t next_tensor_ = 0;
  TensorDigests digests_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_CHECKPOINT_TRAINING_STATE_H_
