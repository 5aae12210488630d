#include "worker/data/dataset.h"

#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"

namespace muster {

absl::StatusOr<Dataset> Dataset::Create(std::vector<uint8_t> features, std::vector<uint8_t> labels,
                                        std::vector<int64_t> feature_shape, int32_t class_count,
                                        Normalization normalization) {
  if (labels.empty()) return absl::InvalidArgumentError("data set: expected at least one sample");
  if (feature_shape.empty()) {
    return absl::InvalidArgumentError("data set: expected at least one feature dimension");
  }
  int64_t feature_count = 1;
  for (const int64_t dimension : feature_shape) {
    if (dimension < 1 || __builtin_mul_overflow(feature_count, dimension, &feature_count)) {
      return absl::InvalidArgumentError(absl::StrCat("data set: feature shape (",
                                                     absl::StrJoin(feature_shape, ", "),
                                                     ") has a dimension below 1 or is too large"));
    }
  }
  // Division rather than a product, which could overflow.
  const size_t sample_features = static_cast<size_t>(feature_count);
  if (features.size() % sample_features != 0 ||
      features.size() / sample_features != labels.size()) {
    return absl::InvalidArgumentError(absl::StrCat("data set: ", labels.size(), " samples of ",
                                                   feature_count, " features do not make up ",
                                                   features.size(), " feature bytes"));
  }
  if (class_count < 1 || class_count > 256) {
    return absl::InvalidArgumentError(
        absl::StrCat("data set: class count ", class_count, ", expected 1 to 256"));
  }
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] >= class_count) {
      return absl::InvalidArgumentError(absl::StrCat(
          "label ", static_cast<int>(labels[i]), " of sample ", i, " is not one of the ",
          class_count, " classes (0 to ", class_count - 1, ")"));
    }
  }
  if (!std::isfinite(normalization.mean) || !std::isfinite(normalization.standard_deviation) ||
      normalization.standard_deviation <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("normalization: expected a finite mean and a finite, positive standard "
                     "deviation, got ",
                     normalization.mean, " and ", normalization.standard_deviation));
  }
  Dataset dataset;
  dataset.features_ = std::move(features);
  dataset.labels_ = std::move(labels);
  dataset.feature_shape_ = std::move(feature_shape);
  dataset.feature_count_ = feature_count;
  dataset.class_count_ = class_count;
  for (int byte = 0; byte < 256; ++byte) {
    dataset.value_of_byte_[static_cast<size_t>(byte)] =
        (static_cast<float>(byte) / 255.0f - normalization.mean) / normalization.standard_deviation;
  }
  return dataset;
}

void Dataset::Gather(absl::Span<const int64_t> sample_ids, absl::Span<float> inputs,
                     absl::Span<int32_t> labels) const {
  MUSTER_CHECK_EQ(inputs.size(), sample_ids.size() * static_cast<size_t>(feature_count_));
  MUSTER_CHECK_EQ(labels.size(), sample_ids.size());
  float* out = inputs.data();
  for (size_t i = 0; i < sample_ids.size(); ++i) {
    const int64_t id = sample_ids[i];
    MUSTER_CHECK(id >= 0 && id < size()) << "sample " << id << " of " << size();
    const uint8_t* bytes = features_.data() + id * feature_count_;
    for (int64_t j = 0; j < feature_count_; ++j) *out++ = value_of_byte_[bytes[j]];
    labels[i] = labels_[static_cast<size_t>(id)];
  }
}

}  // namespace muster
