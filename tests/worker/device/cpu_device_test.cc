// Every kernel of the CPU device beside a plain loop.
#include <cmath>
#include <cstring>
#include <limits>

#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "worker/device/registry.h"

namespace muster {
namespace {

using ::testing::ElementsAre;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> Normals(int64_t count, uint64_t seed) {
  const RandomStream stream(seed, "test");
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(stream.Normal(i));
  return values;
}

class CpuDeviceTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = CreateDevice("cpu", {}).value();
};

TEST_F(CpuDeviceTest, GemmMultipliesWithEveryTransposition) {
  struct Sizes {
    int64_t m, n, k;
  };
  for (const auto [m, n, k] : {Sizes{1, 1, 1}, Sizes{7, 5, 3}, Sizes{1, 10, 128},
                               Sizes{64, 33, 129}, Sizes{31, 256, 17}}) {
    const std::vector<float> a = Normals(m * k, 1), b = Normals(k * n, 2), c = Normals(m * n, 3);
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        for (const float beta : {0.0f, 1.0f, 0.5f}) {
          // With beta 0 what was there must not matter, not even a NaN.
          std::vector<float> out = beta == 0 ? std::vector<float>(m * n, kNan) : c;
          const GemmShape shape{transpose_a, transpose_b, m, n, k};
          ASSERT_TRUE(device_->Gemm(shape, 0.7f, a.data(), b.data(), beta, out.data()).ok());
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < n; ++j) {
              double sum = 0, scale = 0;
              for (int64_t l = 0; l < k; ++l) {
                const double product = double{a[transpose_a ? l * m + i : i * k + l]} *
                                       b[transpose_b ? j * k + l : l * n + j];
                sum += product;
                scale += std::abs(product);
              }
              const double expected = 0.7f * sum + beta * c[i * n + j];
              ASSERT_NEAR(out[i * n + j], expected, 1e-6 * (scale + 1))
                  << m << " " << n << " " << k;
            }
          }
        }
      }
    }
  }
}

TEST_F(CpuDeviceTest, AddBiasAddsPerColumnAndRectifies) {
  for (const int64_t columns : {1, 10, 16, 37}) {
    const std::vector<float> bias = Normals(columns, 1), values = Normals(3 * columns, 2);
    std::vector<float> plain = values, rectified = values;
    ASSERT_TRUE(device_->AddBias(3, columns, bias.data(), Activation::kNone, plain.data()).ok());
    ASSERT_TRUE(
        device_->AddBias(3, columns, bias.data(), Activation::kRelu, rectified.data()).ok());
    for (int64_t i = 0; i < 3 * columns; ++i) {
      const float sum = values[i] + bias[i % columns];
      EXPECT_EQ(plain[i], sum);
      EXPECT_EQ(rectified[i], std::max(sum, 0.0f));
    }
  }
}

TEST_F(CpuDeviceTest, ReluKeepsNan) {
  // A NaN that vanished here would train on unseen.
  std::vector<float> values(19, -1.0f);
  values[2] = kNan;
  values[18] = kNan;
  values[5] = 3;
  ASSERT_TRUE(device_->Relu(19, values.data()).ok());
  for (int i = 0; i < 19; ++i) {
    if (i == 2 || i == 18) {
      EXPECT_TRUE(std::isnan(values[i])) << i;
    } else {
      EXPECT_EQ(values[i], i == 5 ? 3 : 0);
    }
  }
}

TEST_F(CpuDeviceTest, ReluBackwardPassesWhereTheOutputIsPositive) {
  const std::vector<float> output = {1, 0, 2, 0, 0.5f, 0, -0.0f, 3, 0, 1, 0, 1, 1, 0, 0, 1, 1};
  std::vector<float> gradient(output.size(), -2.0f);
  ASSERT_TRUE(device_->ReluBackward(output.size(), output.data(), gradient.data()).ok());
  for (size_t i = 0; i < output.size(); ++i) EXPECT_EQ(gradient[i], output[i] > 0 ? -2 : 0);
}

TEST_F(CpuDeviceTest, BiasGradientSumsRowsOnTopOfWhatIsThere) {
  for (const int64_t rows : {1, 3, 257, 1030}) {
    for (const int64_t columns : {1, 16, 21}) {
      const std::vector<float> gradient = Normals(rows * columns, rows);
      std::vector<float> sums(columns, 5.0f);
      ASSERT_TRUE(device_->BiasGradient(rows, columns, gradient.data(), sums.data()).ok());
      for (int64_t c = 0; c < columns; ++c) {
        double expected = 5;
        for (int64_t r = 0; r < rows; ++r) expected += gradient[r * columns + c];
        EXPECT_NEAR(sums[c], expected, 2e-5);
      }
    }
  }
}

TEST_F(CpuDeviceTest, BiasGradientOfManyRowsLosesNoPrecision) {
  // Adding 0.1f one after the other is off by 1e-2 here.
  const int64_t rows = 200'000;
  const std::vector<float> gradient(rows, 0.1f);
  float sum = 0;
  ASSERT_TRUE(device_->BiasGradient(rows, 1, gradient.data(), &sum).ok());
  EXPECT_NEAR(sum / (rows * double{0.1f}), 1, 2e-5);
}

TEST_F(CpuDeviceTest, MaxPoolFindsTheFirstLargestAndSendsGradientsBackToIt) {
  const RandomStream stream(4, "pool");
  for (const int64_t channels : {1, 16, 19}) {
    const MaxPoolShape shape{.batch = 2, .height = 5, .width = 6, .channels = channels};
    std::vector<float> input(shape.input_size());
    // Few different values, so that ties are common.
    for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(stream.Below(i, 3));
    std::vector<float> output(shape.output_size());
    std::vector<uint8_t> winners(shape.output_size());
    const std::vector<float> output_gradient = Normals(shape.output_size(), 5);
    std::vector<float> input_gradient(shape.input_size(), kNan);
    ASSERT_TRUE(device_->MaxPoolForward(shape, input.data(), output.data(), winners.data()).ok());
    ASSERT_TRUE(
        device_
            ->MaxPoolBackward(shape, output_gradient.data(), winners.data(), input_gradient.data())
            .ok());
    std::vector<float> expected_gradient(shape.input_size(), 0.0f);
    for (int64_t i = 0; i < shape.output_size(); ++i) {
      const int64_t c = i % channels, x = i / channels % 3, y = i / channels / 3 % 2,
                    image = i / channels / 6;
      int64_t best = -1;
      for (int64_t k = 0; k < 4; ++k) {
        const int64_t at = ((image * 5 + 2 * y + k / 2) * 6 + 2 * x + k % 2) * channels + c;
        if (best < 0 || input[at] > input[best]) best = at;
      }
      ASSERT_EQ(output[i], input[best]);
      expected_gradient[best] += output_gradient[i];
    }
    EXPECT_EQ(input_gradient, expected_gradient);
    std::vector<float> without_winners(shape.output_size());
    ASSERT_TRUE(device_->MaxPoolForward(shape, input.data(), without_winners.data(), nullptr).ok());
    EXPECT_EQ(without_winners, output);
  }
}

TEST_F(CpuDeviceTest, MaxPoolLetsNanWin) {
  const MaxPoolShape shape{.batch = 1, .height = 2, .width = 2, .channels = 1};
  for (int position = 0; position < 4; ++position) {
    std::vector<float> input = {1, 2, 3, 4};
    input[position] = kNan;
    float output = 0;
    uint8_t winner = 9;
    ASSERT_TRUE(device_->MaxPoolForward(shape, input.data(), &output, &winner).ok());
    EXPECT_TRUE(std::isnan(output));
    EXPECT_EQ(winner, position);
  }
}

TEST_F(CpuDeviceTest, TransposeImagesExchangesPixelsAndChannels) {
  const std::vector<float> input = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  std::vector<float> output(12), back(12);
  ASSERT_TRUE(device_->TransposeImages(2, 3, 2, input.data(), output.data()).ok());
  EXPECT_THAT(output, ElementsAre(1, 3, 5, 2, 4, 6, 7, 9, 11, 8, 10, 12));
  ASSERT_TRUE(device_->TransposeImages(2, 2, 3, output.data(), back.data()).ok());
  EXPECT_EQ(back, input);
}

TEST_F(CpuDeviceTest, SoftmaxCrossEntropyMatchesTheDefinition) {
  const int64_t batch = 9, classes = 5;
  const std::vector<float> logits = Normals(batch * classes, 6);
  const std::vector<int32_t> labels = {0, 1, 2, 3, 4, 0, 1, 2, 3};
  std::vector<float> gradient(batch * classes);
  const SoftmaxLoss result =
      device_->SoftmaxCrossEntropy(batch, classes, logits.data(), labels.data(), gradient.data())
          .value();
  double loss = 0;
  int64_t correct = 0;
  for (int64_t b = 0; b < batch; ++b) {
    double sum = 0;
    bool largest = true;
    for (int64_t c = 0; c < classes; ++c) {
      sum += std::exp(double{logits[b * classes + c]});
      largest &= logits[b * classes + c] <= logits[b * classes + labels[b]];
    }
    loss -= std::log(std::exp(double{logits[b * classes + labels[b]]}) / sum);
    correct += largest;
    for (int64_t c = 0; c < classes; ++c) {
      const double expected =
          std::exp(double{logits[b * classes + c]}) / sum - (c == labels[b] ? 1 : 0);
      EXPECT_NEAR(gradient[b * classes + c], expected, 1e-7);
    }
  }
  EXPECT_NEAR(result.loss_sum, loss, 1e-12);
  EXPECT_EQ(result.correct, correct);
  EXPECT_EQ(device_->SoftmaxCrossEntropy(batch, classes, logits.data(), labels.data(), nullptr)
                .value()
                .loss_sum,
            result.loss_sum);
}

TEST_F(CpuDeviceTest, SoftmaxCrossEntropyNeitherOverflowsNorHidesNan) {
  const int32_t label = 1;
  const std::vector<float> extreme = {1e4f, -1e4f};
  std::vector<float> gradient(2);
  EXPECT_EQ(
      device_->SoftmaxCrossEntropy(1, 2, extreme.data(), &label, gradient.data()).value().loss_sum,
      2e4);
  EXPECT_THAT(gradient, ElementsAre(1, -1));
  for (const int position : {0, 1}) {
    std::vector<float> bad = {1, 2};
    bad[position] = kNan;
    const auto result = device_->SoftmaxCrossEntropy(1, 2, bad.data(), &label, nullptr).value();
    EXPECT_TRUE(std::isnan(result.loss_sum));
    EXPECT_EQ(result.correct, 0);
  }
}

TEST_F(CpuDeviceTest, VectorKernels) {
  for (const int64_t count : {0, 1, 15, 16, 100}) {
    const std::vector<float> x = Normals(count, 7), y = Normals(count, 8);
    std::vector<float> sum = y, scaled = y, filled = y;
    ASSERT_TRUE(device_->Axpy(count, 0.3f, x.data(), sum.data()).ok());
    ASSERT_TRUE(device_->Scale(count, 0.3f, scaled.data()).ok());
    ASSERT_TRUE(device_->Fill(count, 0.3f, filled.data()).ok());
    for (int64_t i = 0; i < count; ++i) {
      const float product = 0.3f * x[i];
      EXPECT_EQ(sum[i], y[i] + product);
      EXPECT_EQ(scaled[i], 0.3f * y[i]);
      EXPECT_EQ(filled[i], 0.3f);
    }
  }
}

TEST_F(CpuDeviceTest, KernelsGiveTheSameBitsOnEverySimdTarget) {
  const int64_t rows = 300, columns = 53;
  const std::vector<float> values = Normals(rows * columns, 9), bias = Normals(columns, 10);
  const auto run = [&] {
    std::vector<float> out = values, sums(columns);
    EXPECT_TRUE(device_->AddBias(rows, columns, bias.data(), Activation::kRelu, out.data()).ok());
    EXPECT_TRUE(device_->BiasGradient(rows, columns, out.data(), sums.data()).ok());
    EXPECT_TRUE(device_->Axpy(columns, 0.1f, sums.data(), out.data()).ok());
    return out;
  };
  const std::vector<float> best = run();
  const int64_t targets = hwy::SupportedTargets();
  for (int64_t remaining = targets; remaining != 0; remaining &= remaining - 1) {
    const int64_t target = remaining & -remaining;
    hwy::SetSupportedTargetsForTest(target);
    EXPECT_EQ(run(), best) << hwy::TargetName(target);
  }
  hwy::SetSupportedTargetsForTest(0);
}

}  // namespace
}  // namespace muster
