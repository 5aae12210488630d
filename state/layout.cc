#include "state/layout.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/random.h"
#include "base/status_macros.h"

namespace muster {
namespace {

// Far beyond any model, and far from overflow of sizes in bytes.
constexpr int64_t kMaxElements = int64_t{1} << 48;

int64_t RoundUp(int64_t value) {
  return (value + Layout::kAlignment - 1) / Layout::kAlignment * Layout::kAlignment;
}

// The number of elements of `spec`, or why it has none.
absl::StatusOr<int64_t> CountElements(const TensorSpec& spec) {
  int64_t count = 1;
  for (const int64_t extent : spec.shape) {
    if (extent <= 0 || count > kMaxElements / extent) {
      return absl::InvalidArgumentError(
          absl::StrFormat("tensor \"%s\": expected a shape of positive extents with at most 2^48 "
                          "elements, got [%s]",
                          spec.name, absl::StrJoin(spec.shape, ", ")));
    }
    count *= extent;
  }
  return count;
}

absl::Status ValidateSpec(const TensorSpec& spec, int previous_block) {
  if (spec.name.empty()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("a tensor of block %d has no name", spec.block));
  }
  if (spec.block != previous_block && spec.block != previous_block + 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "tensor \"%s\": expected block %d or %d (blocks count from 0 and rise by 0 or 1), got %d",
        spec.name, previous_block, previous_block + 1, spec.block));
  }
  if (!std::isfinite(spec.scale) || spec.scale < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tensor \"%s\": expected a finite initializer scale of at least 0, got %g",
                        spec.name, spec.scale));
  }
  if (!std::isfinite(spec.learning_rate_scale) || spec.learning_rate_scale <= 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tensor \"%s\": expected a finite learning rate scale above 0, got %g",
                        spec.name, spec.learning_rate_scale));
  }
  const double weight_decay = spec.weight_decay.value_or(0);
  if (!std::isfinite(weight_decay) || weight_decay < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tensor \"%s\": expected a finite weight decay of at least 0, got %g",
                        spec.name, weight_decay));
  }
  int before = spec.block;
  for (const int reader : spec.also_read_by) {
    if (reader <= before) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "tensor \"%s\": expected blocks that read it as well in rising order above its own, %d, "
          "got [%s]",
          spec.name, spec.block, absl::StrJoin(spec.also_read_by, ", ")));
    }
    before = reader;
  }
  return absl::OkStatus();
}

// Cuts [offset, offset + count) into the fewest buckets of at most `limit` elements, of sizes as
// equal as the alignment allows. `count` and `limit` are positive multiples of the alignment.
void CutIntoBuckets(int block, int64_t offset, int64_t count, int64_t limit,
                    std::vector<Bucket>& buckets) {
  const int64_t pieces = (count + limit - 1) / limit;
  const int64_t units = count / Layout::kAlignment;
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t size = (units / pieces + (i < units % pieces ? 1 : 0)) * Layout::kAlignment;
    buckets.push_back({.block = block, .offset = offset, .count = size});
    offset += size;
  }
}

// The space without the frozen tensors.
std::vector<Range> TrainedRanges(const std::vector<Tensor>& tensors) {
  std::vector<Range> ranges;
  bool gap = true;  // a frozen tensor lies since the last range
  for (const Tensor& tensor : tensors) {
    if (tensor.spec.frozen) {
      gap = true;
      continue;
    }
    if (gap) ranges.push_back({.offset = tensor.offset, .count = 0});
    gap = false;
    ranges.back().count = tensor.offset + tensor.count - ranges.back().offset;
  }
  return ranges;
}

// Marks the buckets that no trained range reaches. Both lists are in order of offset.
void MarkFrozen(const std::vector<Range>& trained, std::vector<Bucket>& buckets) {
  auto range = trained.begin();
  for (Bucket& bucket : buckets) {
    while (range != trained.end() && range->end() <= bucket.offset) ++range;
    bucket.frozen = range == trained.end() || range->offset >= bucket.offset + bucket.count;
  }
}

uint64_t Fingerprint(const std::vector<Tensor>& tensors, const std::vector<Bucket>& buckets) {
  std::string text = "muster layout 2\n";
  for (const Tensor& tensor : tensors) {
    const TensorSpec& spec = tensor.spec;
    absl::StrAppendFormat(&text, "%d:%s [%s] block %d init %d %a decay %d at %d", spec.name.size(),
                          spec.name, absl::StrJoin(spec.shape, ","), spec.block,
                          static_cast<int>(spec.initializer), spec.scale, spec.decay ? 1 : 0,
                          tensor.offset);
    // Below 0 where the rule's own weight decay applies.
    absl::StrAppendFormat(&text, " weight decay %a rate %a frozen %d\n",
                          spec.weight_decay.value_or(-1), spec.learning_rate_scale,
                          spec.frozen ? 1 : 0);
    if (!spec.also_read_by.empty()) {
      absl::StrAppendFormat(&text, " also read by %s\n", absl::StrJoin(spec.also_read_by, ","));
    }
  }
  for (const Bucket& bucket : buckets) {
    absl::StrAppendFormat(&text, "bucket %d %d %d\n", bucket.block, bucket.offset, bucket.count);
  }
  return StableHash(text);
}

}  // namespace

absl::StatusOr<Layout> Layout::Create(std::vector<TensorSpec> tensors, int64_t bucket_elements) {
  if (tensors.empty()) return absl::InvalidArgumentError("a layout needs at least one tensor");
  if (bucket_elements < kAlignment) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "bucket_elements: expected at least %d, got %d", kAlignment, bucket_elements));
  }
  const int64_t bucket_limit = bucket_elements / kAlignment * kAlignment;
  if (tensors.front().block != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tensor \"%s\": expected block 0 for the first tensor, got %d",
                        tensors.front().name, tensors.front().block));
  }

  Layout layout;
  absl::flat_hash_set<std::string> names;
  std::vector<int64_t> block_starts;
  int64_t offset = 0;
  for (TensorSpec& spec : tensors) {
    const int previous_block = static_cast<int>(block_starts.size()) - 1;
    MUSTER_RETURN_IF_ERROR(ValidateSpec(spec, previous_block < 0 ? 0 : previous_block));
    MUSTER_ASSIGN_OR_RETURN(const int64_t count, CountElements(spec));
    if (!names.insert(spec.name).second) {
      return absl::InvalidArgumentError(
          absl::StrFormat("two tensors are named \"%s\"; names must be unique", spec.name));
    }
    if (spec.block != previous_block) block_starts.push_back(offset);
    layout.tensors_.push_back({.spec = std::move(spec), .offset = offset, .count = count});
    layout.parameter_count_ += count;
    offset += RoundUp(count);
    if (offset > kMaxElements) {
      return absl::InvalidArgumentError(
          absl::StrFormat("tensor \"%s\": the layout grows beyond 2^48 elements",
                          layout.tensors_.back().spec.name));
    }
  }
  layout.padded_count_ = offset;
  layout.trained_ranges_ = TrainedRanges(layout.tensors_);
  const auto first_trained =
      absl::c_find_if(layout.tensors_, [](const Tensor& tensor) { return !tensor.spec.frozen; });
  if (first_trained == layout.tensors_.end()) {
    return absl::InvalidArgumentError("all tensors are frozen: there is nothing to train");
  }
  layout.first_trained_block_ = first_trained->spec.block;
  for (const Tensor& tensor : layout.tensors_) {
    if (!tensor.spec.frozen) layout.trained_parameter_count_ += tensor.count;
  }
  layout.block_count_ = static_cast<int>(block_starts.size());
  MUSTER_RETURN_IF_ERROR(layout.Tie());

  block_starts.push_back(offset);
  for (int block = 0; block < layout.block_count_; ++block) {
    const int first = static_cast<int>(layout.buckets_.size());
    CutIntoBuckets(block, block_starts[block], block_starts[block + 1] - block_starts[block],
                   bucket_limit, layout.buckets_);
    layout.block_buckets_.push_back(
        {.first = first, .last = static_cast<int>(layout.buckets_.size())});
  }
  MarkFrozen(layout.trained_ranges_, layout.buckets_);
  layout.fingerprint_ = Fingerprint(layout.tensors_, layout.buckets_);
  return layout;
}

absl::Status Layout::Tie() {
  tied_tensors_.resize(static_cast<size_t>(block_count_));
  tied_blocks_.resize(static_cast<size_t>(block_count_));
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const TensorSpec& spec = tensors_[i].spec;
    for (const int reader : spec.also_read_by) {
      if (reader >= block_count_) {
        return absl::InvalidArgumentError(
            absl::StrFormat("tensor \"%s\": is read by block %d, but there are only %d blocks",
                            spec.name, reader, block_count_));
      }
      tied_tensors_[static_cast<size_t>(reader)].push_back(static_cast<int>(i));
      std::vector<int>& blocks = tied_blocks_[static_cast<size_t>(reader)];
      // Tensors are in order of their blocks.
      if (blocks.empty() || blocks.back() != spec.block) blocks.push_back(spec.block);
      most_tied_blocks_ = std::max(most_tied_blocks_, static_cast<int>(blocks.size()));
    }
  }
  return absl::OkStatus();
}

const Tensor* Layout::Find(absl::string_view name) const {
  for (const Tensor& tensor : tensors_) {
    if (tensor.spec.name == name) return &tensor;
  }
  return nullptr;
}

}  // namespace muster
