// What a checkpoint keeps of a job: a view onto the state of one worker that holds all of it.
#ifndef MUSTER_WORKER_CHECKPOINT_TRAINING_STATE_H_
#define MUSTER_WORKER_CHECKPOINT_TRAINING_STATE_H_

#include <cstdint>
#include <functional>
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

// Borrowed: the spans must not change while a checkpoint is written from it.
struct TrainingState {
  TrainingProgress progress;
  const Layout* layout = nullptr;
  absl::Span<const float> parameters;  // layout->padded_count() elements, as is every slot
  std::vector<OptimizerSlot> slots;
};

// Takes a tensor in: for who keeps only parts of the space.
using TensorSink = std::function<void(const Tensor& tensor, absl::Span<const float> values)>;

// Where Load puts a slot: into `values`, all of the space, or, if it is given, to `take`.
struct OptimizerSlotDestination {
  std::string name;
  absl::Span<float> values;
  TensorSink take;
};

// SHA-256 (hexadecimal) over the little-endian f32 bytes of all tensors in the order of the layout,
// without padding. Requires: parameters.size() == layout.padded_count().
std::string ParametersSha256(const Layout& layout, absl::Span<const float> parameters);

// The same, block by block from block 0 on. `layout` must outlive the object.
class ParametersHash {
 public:
  explicit ParametersHash(const Layout& layout) : layout_(layout) {}
  // `parameters`: of Layout::RangeOfBlock(block).
  void AddBlock(int block, const float* parameters);
  std::string HexDigest() { return hash_.HexDigest(); }

 private:
  const Layout& layout_;
  size_t next_tensor_ = 0;
  Sha256 hash_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_CHECKPOINT_TRAINING_STATE_H_
