// The CPU device's convolutions beside the definition, in double precision.
#include <cmath>

#include "base/random.h"
#include "gtest/gtest.h"
#include "worker/device/registry.h"

namespace muster {
namespace {

std::vector<float> Normals(int64_t count, uint64_t seed) {
  const RandomStream stream(seed, "test");
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(stream.Normal(i));
  return values;
}

// Calls visit(input index, weight index, output index) for every product of the convolution.
template <class Visit>
void ForEachProduct(const ConvolutionShape& s, Visit visit) {
  const int64_t padding = s.kernel / 2;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t y = 0; y < s.height; ++y) {
      for (int64_t x = 0; x < s.width; ++x) {
        for (int64_t ky = 0; ky < s.kernel; ++ky) {
          for (int64_t kx = 0; kx < s.kernel; ++kx) {
            const int64_t iy = y + ky - padding, ix = x + kx - padding;
            if (iy < 0 || iy >= s.height || ix < 0 || ix >= s.width) continue;
            for (int64_t o = 0; o < s.out_channels; ++o) {
              for (int64_t i = 0; i < s.in_channels; ++i) {
                visit(((b * s.height + iy) * s.width + ix) * s.in_channels + i,
                      ((o * s.in_channels + i) * s.kernel + ky) * s.kernel + kx,
                      ((b * s.height + y) * s.width + x) * s.out_channels + o);
              }
            }
          }
        }
      }
    }
  }
}

// Elementwise, on the scale of the largest element.
void ExpectNear(const std::vector<float>& actual, const std::vector<double>& expected) {
  double scale = 0;
  for (const double value : expected) scale = std::max(scale, std::abs(value));
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], 2e-6 * scale) << i;
  }
}

void Check(Device& device, const ConvolutionShape& shape) {
  SCOPED_TRACE(absl::StrFormat("[%d, %d, %d, %d] to %d, kernel %d", shape.batch, shape.height,
                               shape.width, shape.in_channels, shape.out_channels, shape.kernel));
  const std::vector<float> input = Normals(shape.input_size(), 1);
  const std::vector<float> weights = Normals(shape.weight_size(), 2);
  const std::vector<float> bias = Normals(shape.out_channels, 3);
  const std::vector<float> output_gradient = Normals(shape.output_size(), 4);
  const std::vector<float> before = Normals(shape.weight_size(), 5);

  std::vector<double> output(shape.output_size()), input_gradient(shape.input_size()),
      weight_gradient(before.begin(), before.end());
  for (size_t i = 0; i < output.size(); ++i) output[i] = bias[i % shape.out_channels];
  ForEachProduct(shape, [&](int64_t in, int64_t weight, int64_t out) {
    output[out] += double{input[in]} * weights[weight];
    input_gradient[in] += double{output_gradient[out]} * weights[weight];
    weight_gradient[weight] += double{output_gradient[out]} * input[in];
  });

  std::vector<float> actual_output(shape.output_size()), actual_input_gradient(shape.input_size());
  std::vector<float> actual_weight_gradient = before;
  ASSERT_TRUE(device
                  .ConvolutionForward(shape, input.data(), weights.data(), bias.data(),
                                      actual_output.data())
                  .ok());
  ASSERT_TRUE(device
                  .ConvolutionBackwardData(shape, output_gradient.data(), weights.data(),
                                           actual_input_gradient.data())
                  .ok());
  ASSERT_TRUE(device
                  .ConvolutionBackwardWeights(shape, input.data(), output_gradient.data(),
                                              actual_weight_gradient.data())
                  .ok());
  ExpectNear(actual_output, output);
  ExpectNear(actual_input_gradient, input_gradient);
  ExpectNear(actual_weight_gradient, weight_gradient);
}

TEST(CpuConvolutionTest, MatchesTheDefinition) {
  const auto device = CreateDevice("cpu", {}).value();
  for (const ConvolutionShape& shape :
       {ConvolutionShape{1, 1, 1, 1, 1, 3}, ConvolutionShape{2, 7, 5, 1, 16, 3},
        ConvolutionShape{3, 6, 6, 16, 32, 3}, ConvolutionShape{2, 5, 9, 3, 17, 5},
        ConvolutionShape{4, 4, 4, 19, 5, 1}, ConvolutionShape{1, 2, 3, 2, 3, 7}}) {
    Check(*device, shape);
  }
}

TEST(CpuConvolutionTest, WorksOnSeveralThreads) {
  const auto device = CreateDevice("cpu", {.cpu = {.threads = 2}}).value();
  Check(*device, {5, 14, 14, 16, 32, 3});
}

TEST(CpuConvolutionTest, ManyShapesInTurnDoNotMixUp) {
  const auto device = CreateDevice("cpu", {}).value();
  for (int round = 0; round < 2; ++round) {
    for (int64_t batch = 1; batch <= 40; ++batch) Check(*device, {batch, 2, 2, 1, 2, 3});
  }
}

TEST(CpuConvolutionTest, RepeatsItsBits) {
  const ConvolutionShape shape{8, 14, 14, 16, 32, 3};
  const std::vector<float> input = Normals(shape.input_size(), 1);
  const std::vector<float> output_gradient = Normals(shape.output_size(), 4);
  std::vector<std::vector<float>> results;
  for (int round = 0; round < 3; ++round) {
    const auto device = CreateDevice("cpu", {}).value();
    std::vector<float> weight_gradient(shape.weight_size());
    ASSERT_TRUE(device
                    ->ConvolutionBackwardWeights(shape, input.data(), output_gradient.data(),
                                                 weight_gradient.data())
                    .ok());
    results.push_back(weight_gradient);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

}  // namespace
}  // namespace muster
