#include "tests/worker/model/reference_model.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"

namespace muster {
namespace {

using Values = std::vector<double>;

struct Image {
  int64_t channels = 0, height = 0, width = 0;
  Values values;  // [channels, height, width]

  double At(int64_t c, int64_t y, int64_t x) const {
    if (y < 0 || y >= height || x < 0 || x >= width) return 0;
    return values[(c * height + y) * width + x];
  }
};

class ReferenceModel {
 public:
  ReferenceModel(const Layout& layout, absl::Span<const double> parameters)
      : layout_(layout), parameters_(parameters) {}

  // `transpose_of`: the layer whose transposed weight is this one's.
  Values Linear(const std::string& layer, const Values& input,
                const std::string& transpose_of = "") const {
    const bool transposed = !transpose_of.empty();
    const double* weight = Find((transposed ? transpose_of : layer) + ".weight");
    const double* bias = Find(layer + ".bias");
    Values output(layout_.Find(layer + ".bias")->count);
    for (size_t o = 0; o < output.size(); ++o) {
      output[o] = bias[o];
      for (size_t i = 0; i < input.size(); ++i) {
        output[o] += weight[transposed ? i * output.size() + o : o * input.size() + i] * input[i];
      }
    }
    return output;
  }

  Image Convolve(const std::string& layer, const Image& input) const {
    const double* weight = Find(layer + ".weight");
    const double* bias = Find(layer + ".bias");
    Image output{layout_.Find(layer + ".bias")->count, input.height, input.width, {}};
    for (int64_t o = 0; o < output.channels; ++o) {
      for (int64_t y = 0; y < input.height; ++y) {
        for (int64_t x = 0; x < input.width; ++x) {
          double sum = bias[o];
          for (int64_t i = 0; i < input.channels; ++i) {
            for (int64_t k = 0; k < 9; ++k) {
              sum += weight[(o * input.channels + i) * 9 + k] *
                     input.At(i, y + k / 3 - 1, x + k % 3 - 1);
            }
          }
          output.values.push_back(sum);
        }
      }
    }
    return output;
  }

 private:
  const double* Find(const std::string& name) const {
    return parameters_.data() + layout_.Find(name)->offset;
  }

  const Layout& layout_;
  absl::Span<const double> parameters_;
};

void Relu(Values& values) {
  for (double& value : values) value = std::max(value, 0.0);
}

Image Pool(const Image& input) {
  Image output{input.channels, input.height / 2, input.width / 2, {}};
  for (int64_t c = 0; c < output.channels; ++c) {
    for (int64_t y = 0; y < output.height; ++y) {
      for (int64_t x = 0; x < output.width; ++x) {
        output.values.push_back(
            std::max({input.At(c, 2 * y, 2 * x), input.At(c, 2 * y, 2 * x + 1),
                      input.At(c, 2 * y + 1, 2 * x), input.At(c, 2 * y + 1, 2 * x + 1)}));
      }
    }
  }
  return output;
}

Values MlpLogits(const MlpConfig& config, const ReferenceModel& model, Values values) {
  for (size_t i = 1; i <= config.hidden.size(); ++i) {
    // Layer 2 is the first between hidden ones, the last of these is layer hidden.size().
    const size_t mirror = config.hidden.size() + 2 - i;
    const bool tied = config.tie_weights && i > 1 && mirror < i;
    values = model.Linear(absl::StrCat("fc", i), values, tied ? absl::StrCat("fc", mirror) : "");
    Relu(values);
  }
  return model.Linear(absl::StrCat("fc", config.hidden.size() + 1), values);
}

Values CnnLogits(const CnnConfig& config, const ReferenceModel& model, Values values) {
  Image image{config.channels, config.height, config.width, std::move(values)};
  for (size_t i = 1; i <= config.conv_channels.size(); ++i) {
    image = model.Convolve(absl::StrCat("conv", i), image);
    Relu(image.values);
    image = Pool(image);
  }
  Values hidden = model.Linear("fc1", image.values);
  Relu(hidden);
  return model.Linear("fc2", hidden);
}

}  // namespace

double ReferenceLoss(const ModelConfig& config, const Layout& layout,
                     absl::Span<const double> parameters, absl::Span<const float> inputs,
                     absl::Span<const int32_t> labels) {
  const ReferenceModel model(layout, parameters);
  const size_t features = inputs.size() / labels.size();
  double loss = 0;
  for (size_t sample = 0; sample < labels.size(); ++sample) {
    const absl::Span<const float> row = inputs.subspan(sample * features, features);
    const Values input(row.begin(), row.end());
    const auto* mlp = std::get_if<MlpConfig>(&config.architecture);
    const Values logits = mlp != nullptr
                              ? MlpLogits(*mlp, model, input)
                              : CnnLogits(std::get<CnnConfig>(config.architecture), model, input);
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit);
    loss += std::log(sum) - logits[labels[sample]];
  }
  return loss;
}

}  // namespace muster
