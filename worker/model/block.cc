#include "worker/model/block.h"

#include <cmath>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace muster::internal {

LayerParameters::LayerParameters(std::string layer, std::vector<int64_t> weight_shape,
                                 std::string weight_of)
    : layer_(std::move(layer)),
      weight_shape_(std::move(weight_shape)),
      weight_of_(std::move(weight_of)) {}

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
  if (tied()) {
    const std::string name = absl::StrCat(weight_of_, ".weight");
    const auto shared =
        absl::c_find_if(tensors, [&name](const TensorSpec& tensor) { return tensor.name == name; });
    MUSTER_CHECK(shared != tensors.end()) << name << " is no tensor before " << layer_;
    shared->also_read_by.push_back(block);
  } else {
    tensors.push_back(std::move(weight));
  }
  tensors.push_back(std::move(bias));
}

void LayerParameters::Bind(const Layout& layout) {
  const Tensor* bias = layout.Find(absl::StrCat(layer_, ".bias"));
  MUSTER_CHECK(bias != nullptr) << layer_;
  const int64_t begin = layout.RangeOfBlock(bias->spec.block).offset;
  bias_offset_ = bias->offset - begin;
  if (tied()) return;
  const Tensor* weight = layout.Find(absl::StrCat(layer_, ".weight"));
  MUSTER_CHECK(weight != nullptr && weight->spec.block == bias->spec.block) << layer_;
  weight_offset_ = weight->offset - begin;
}

}  // namespace muster::internal
