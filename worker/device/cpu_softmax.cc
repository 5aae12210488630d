#include <algorithm>
#include <cmath>

#include "worker/device/cpu_kernels.h"

namespace muster::internal {

// In double precision, since the loss is summed over many samples; class counts of classifiers are
// small against the layers below.
SoftmaxLoss SoftmaxCrossEntropy(int64_t batch, int64_t classes, const float* logits,
                                const int32_t* labels, float* gradient) {
  SoftmaxLoss result;
  for (int64_t sample = 0; sample < batch; ++sample) {
    const float* row = logits + sample * classes;
    const int32_t label = labels[sample];
    const int64_t best = std::max_element(row, row + classes) - row;
    // exp(x - largest) cannot overflow. A NaN anywhere makes the sum NaN.
    const double largest = row[best];
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(row[c] - largest);
    result.loss_sum += std::log(sum) - (row[label] - largest);
    // A label that ties with an earlier class, or meets a NaN, is not correct.
    if (best == label && !std::isnan(sum)) ++result.correct;
    if (gradient == nullptr) continue;
    float* out = gradient + sample * classes;
    for (int64_t c = 0; c < classes; ++c) {
      const double probability = std::exp(row[c] - largest) / sum;
      out[c] = static_cast<float>(probability - (c == label ? 1.0 : 0.0));
    }
  }
  return result;
}

}  // namespace muster::internal
