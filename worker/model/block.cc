#include "worker/model/block.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace muster::internal {

LayerParameters::LayerParameters(std::string layer, std::vector<int64_t> weight_shape)
    : layer_(std::move(layer)), weight_shape_(std::move(weight_shape)) {}

void LayerParameters::Describe(int block, std::vector<TensorSpec>& tensors) const {
  double fan_in = 1;
  for (size_t i = 1; i < weight_shape_.size(); ++i) fan_in *= static_cast<double>(weight_shape_[i]);
  TensorSpec weight{.name = absl::StrCat(layer_, ".weight"),
                    .shape = weight_shape_,
                    .block = block,
                    .initializer = Initializer::kUniform,
                    .scale = static_cast<float>(1 / std::sqrt(fan_in)),
                    .decay = true};
  TensorSpec bias = weight;
  bias.name = absl::StrCat(layer_, ".bias");
  bias.shape = {weight_shape_.front()};
  bias.decay = false;
  tensors.push_back(std::move(weight));
  tensors.push_back(std::move(bias));
}

void LayerParameters::Bind(const Layout& layout) {
  const Tensor* weight = layout.Find(absl::StrCat(layer_, ".weight"));
  const Tensor* bias = layout.Find(absl::StrCat(layer_, ".bias"));
  MUSTER_CHECK(weight != nullptr && bias != nullptr) << layer_;
  const int64_t begin = layout.RangeOfBlock(weight->spec.block).offset;
  weight_offset_ = weight->offset - begin;
  bias_offset_ = bias->offset - begin;
}

}  // namespace muster::internal
