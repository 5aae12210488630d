#include "worker/model/model_config.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "state/layout.h"

namespace muster {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 20;  // features, hidden units, classes
constexpr int64_t kMaxExtent = 4096;            // of an image, and channels
constexpr int64_t kMaxLayers = 64;

absl::Status CheckField(absl::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: expected %d to %d, got %d", field, low, high, value));
}

absl::Status CheckList(absl::string_view field, const std::vector<int64_t>& values,
                       int64_t least_length, int64_t high) {
  MUSTER_RETURN_IF_ERROR(CheckField(absl::StrCat(field, " (number of layers)"),
                                    static_cast<int64_t>(values.size()), least_length, kMaxLayers));
  for (size_t i = 0; i < values.size(); ++i) {
    MUSTER_RETURN_IF_ERROR(CheckField(absl::StrFormat("%s[%d]", field, i), values[i], 1, high));
  }
  return absl::OkStatus();
}

absl::Status ValidateMlp(const MlpConfig& mlp) {
  MUSTER_RETURN_IF_ERROR(CheckField("model.mlp.input", mlp.input, 1, kMaxSize));
  MUSTER_RETURN_IF_ERROR(CheckList("model.mlp.hidden", mlp.hidden, 0, kMaxSize));
  const bool mirrored = std::equal(mlp.hidden.begin(), mlp.hidden.end(), mlp.hidden.rbegin());
  if (mlp.tie_weights && (mlp.hidden.size() < 3 || !mirrored)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("model.mlp.tie_weights: expected three or more hidden layers that read the "
                        "same from both ends, such as 256, 64, 256, got [%s]",
                        absl::StrJoin(mlp.hidden, ", ")));
  }
  return CheckField("model.mlp.classes", mlp.classes, 2, kMaxSize);
}

absl::Status ValidateCnn(const CnnConfig& cnn) {
  MUSTER_RETURN_IF_ERROR(CheckField("model.cnn.height", cnn.height, 2, kMaxExtent));
  MUSTER_RETURN_IF_ERROR(CheckField("model.cnn.width", cnn.width, 2, kMaxExtent));
  MUSTER_RETURN_IF_ERROR(CheckField("model.cnn.image_channels", cnn.channels, 1, kMaxExtent));
  MUSTER_RETURN_IF_ERROR(CheckList("model.cnn.channels", cnn.conv_channels, 1, kMaxExtent));
  const int layers = static_cast<int>(cnn.conv_channels.size());
  if (cnn.height >> layers == 0 || cnn.width >> layers == 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "model.cnn.channels: %d layers each halve the image, and %d x %d pixels do not last "
        "that long; use fewer layers or larger images",
        layers, cnn.height, cnn.width));
  }
  MUSTER_RETURN_IF_ERROR(CheckField("model.cnn.hidden", cnn.hidden, 1, kMaxSize));
  return CheckField("model.cnn.classes", cnn.classes, 2, kMaxSize);
}

}  // namespace

absl::string_view TypeName(const ModelConfig& config) {
  return std::holds_alternative<MlpConfig>(config.architecture) ? "mlp" : "cnn";
}

absl::Status Validate(const ModelConfig& config) {
  MUSTER_RETURN_IF_ERROR(CheckField("model.bucket_elements", config.bucket_elements,
                                    Layout::kAlignment, int64_t{1} << 40));
  if (const auto* mlp = std::get_if<MlpConfig>(&config.architecture)) return ValidateMlp(*mlp);
  return ValidateCnn(std::get<CnnConfig>(config.architecture));
}

}  // namespace muster
