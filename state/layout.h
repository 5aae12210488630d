// The layout: every parameter of a model in one flat, padded, ordered space of elements.
//
// Tensors belong to blocks (the unit at which strategies hook into forward and backward); blocks
// lie one after the other in forward order. A block is cut into buckets (gradient fusion buffers)
// that never straddle blocks. Each tensor and each bucket starts at a multiple of kAlignment
// elements, and the buckets together tile the whole space. A tensor that several blocks read (tied
// parameters) is there once, in the first of them. Padding elements are zero, have zero
// gradients, and never leave the fleet (checkpoints and hashes skip them).
//
// A layout is a pure value: the same description gives the same layout on every worker, whatever
// the world size. Immutable after construction, so thread-safe.
#ifndef MUSTER_STATE_LAYOUT_H_
#define MUSTER_STATE_LAYOUT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "state/range.h"

namespace muster {

// How a tensor's first value is drawn; every element is a pure function of (seed, tensor name,
// element index).
enum class Initializer : uint8_t {
  kZero,
  kOne,
  kNormal,   // mean 0, standard deviation `scale`
  kUniform,  // [-scale, scale)
};

// What a model says of one parameter tensor.
struct TensorSpec {
  std::string name;            // unique, Hugging Face style: "fc1.weight"
  std::vector<int64_t> shape;  // row-major; product > 0
  int block = 0;               // rises from tensor to tensor by 0 or 1
  Initializer initializer = Initializer::kZero;
  float scale = 0;
  bool decay = true;  // weight decay applies (false for biases and norms)
  // Blocks that read the tensor beside its own (tied parameters), in rising order, all later ones.
  std::vector<int> also_read_by;

  // What the job's parameter groups say of it (state/parameter_groups.h).
  std::optional<double> weight_decay;  // instead of the update rule's, whatever `decay` says; >= 0
  double learning_rate_scale = 1;      // > 0
  bool frozen = false;                 // keeps its first value; its gradient counts nowhere
};

struct Tensor {
  TensorSpec spec;
  int64_t offset = 0;  // in elements, in the flat space
  int64_t count = 0;
};

// Elements [offset, offset + count) of the flat space.
struct Bucket {
  int block = 0;
  int64_t offset = 0;
  int64_t count = 0;
  bool frozen = false;  // all its tensors are: nobody needs its gradient
};

class Layout {
 public:
  static constexpr int64_t kAlignment = 64;  // elements; 256 bytes of f32

  // `bucket_elements` is the largest size of a bucket (at least kAlignment); tensors may straddle
  // buckets of their block. INVALID_ARGUMENT names the tensor that is wrong; it is an error, too,
  // if all tensors are frozen.
  static absl::StatusOr<Layout> Create(std::vector<TensorSpec> tensors, int64_t bucket_elements);

  const std::vector<Tensor>& tensors() const { return tensors_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  int block_count() const { return block_count_; }
  // Indices into buckets() of one block: [first, last).
  struct BucketRange {
    int first = 0;
    int last = 0;
  };
  BucketRange BucketsOfBlock(int block) const { return block_buckets_[block]; }
  // The elements of a block, padding included.
  Range RangeOfBlock(int block) const {
    const Bucket& first = buckets_[block_buckets_[block].first];
    const Bucket& last = buckets_[block_buckets_[block].last - 1];
    return {first.offset, last.offset + last.count - first.offset};
  }

  // Tied parameters: what a block reads of others. By index, in rising order.
  const std::vector<int>& TiedTensors(int block) const { return tied_tensors_[block]; }
  const std::vector<int>& TiedBlocks(int block) const { return tied_blocks_[block]; }
  // The most blocks that any block reads beside itself.
  int most_tied_blocks() const { return most_tied_blocks_; }

  int64_t padded_count() const { return padded_count_; }        // size of the flat space
  int64_t parameter_count() const { return parameter_count_; }  // without padding

  // What trains: the space without its frozen tensors, in order of offset. Padding between two
  // trained tensors is part of it. Only these ranges need gradients, optimizer state and master
  // weights.
  const std::vector<Range>& trained_ranges() const { return trained_ranges_; }
  int64_t trained_parameter_count() const { return trained_parameter_count_; }  // without padding
  // The first block that trains; backward need not go beyond it.
  int first_trained_block() const { return first_trained_block_; }

  // nullptr if there is none of this name.
  const Tensor* Find(absl::string_view name) const;

  // A hash of everything above: two workers with different layouts must never exchange state.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  Layout() = default;
  // Finds what blocks read of others.
  absl::Status Tie();

  std::vector<Tensor> tensors_;
  std::vector<Bucket> buckets_;
  std::vector<BucketRange> block_buckets_;
  std::vector<std::vector<int>> tied_tensors_;  // by block
  std::vector<std::vector<int>> tied_blocks_;
  int most_tied_blocks_ = 0;
  int block_count_ = 0;
  int64_t padded_count_ = 0;
  int64_t parameter_count_ = 0;
  std::vector<Range> trained_ranges_;
  int64_t trained_parameter_count_ = 0;
  int first_trained_block_ = 0;
  uint64_t fingerprint_ = 0;
};

}  // namespace muster

#endif  // MUSTER_STATE_LAYOUT_H_
