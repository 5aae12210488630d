// A classification data set in memory: samples of one shape with one label each.
//
// Features are kept as bytes and converted when a batch is gathered: byte v becomes
// (v / 255 - mean) / standard_deviation. Immutable, so thread-safe.
#ifndef MUSTER_WORKER_DATA_DATASET_H_
#define MUSTER_WORKER_DATA_DATASET_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace muster {

// Applied after scaling to [0, 1]. The default leaves [0, 1].
struct Normalization {
  float mean = 0;
  float standard_deviation = 1;
};

// What a model's shape depends on.
struct DatasetShape {
  int64_t size = 0;                    // samples
  std::vector<int64_t> feature_shape;  // of one
  bool operator==(const DatasetShape&) const = default;
};

class Dataset {
 public:
  // `features` holds the samples one after the other, each row-major of `feature_shape`; `labels`
  // one label below `class_count` per sample. INVALID_ARGUMENT names what does not fit: no sample,
  // an empty or non-positive shape, sizes that disagree, a label out of range (with its index), a
  // normalisation that is not finite or not positive.
  static absl::StatusOr<Dataset> Create(std::vector<uint8_t> features, std::vector<uint8_t> labels,
                                        std::vector<int64_t> feature_shape, int32_t class_count,
                                        Normalization normalization);

  DatasetShape shape() const { return {size(), feature_shape_}; }
  int64_t size() const { return static_cast<int64_t>(labels_.size()); }
  const std::vector<int64_t>& feature_shape() const { return feature_shape_; }
  int64_t feature_count() const { return feature_count_; }  // elements of one sample
  int32_t class_count() const { return class_count_; }

  // Writes the samples one after the other. Requires: ids within [0, size());
  // inputs.size() == sample_ids.size() * feature_count(); labels.size() == sample_ids.size().
  void Gather(absl::Span<const int64_t> sample_ids, absl::Span<float> inputs,
              absl::Span<int32_t> labels) const;

 private:
  Dataset() = default;
  std::vector<uint8_t> features_;
  std::vector<uint8_t> labels_;
  std::vector<int64_t> feature_shape_;
  int64_t feature_count_ = 0;
  int32_t class_count_ = 0;
  std::array<float, 256> value_of_byte_ = {};
};

}  // namespace muster

#endif  // MUSTER_WORKER_DATA_DATASET_H_
