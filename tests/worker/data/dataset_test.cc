#include "worker/data/dataset.h"

#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DatasetTest, GathersScaledSamplesAndLabelsInTheOrderAsked) {
  const auto dataset = Dataset::Create({0, 51, 102, 153, 204, 255}, {2, 0, 1}, {2}, 3, {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->size(), 3);
  EXPECT_EQ(dataset->feature_count(), 2);
  std::vector<float> inputs(6);
  std::vector<int32_t> labels(3);
  dataset->Gather({2, 0, 2}, absl::MakeSpan(inputs), absl::MakeSpan(labels));
  EXPECT_THAT(inputs, ElementsAre(0.8f, 1.0f, 0.0f, 0.2f, 0.8f, 1.0f));
  EXPECT_THAT(labels, ElementsAre(1, 2, 1));
}

TEST(DatasetTest, NormalizesAfterScaling) {
  const auto dataset =
      Dataset::Create({0, 255}, {0}, {2}, 1, {.mean = 0.25f, .standard_deviation = 0.5f});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::vector<float> inputs(2);
  std::vector<int32_t> labels(1);
  dataset->Gather({0}, absl::MakeSpan(inputs), absl::MakeSpan(labels));
  EXPECT_THAT(inputs, ElementsAre(-0.5f, 1.5f));
}

TEST(DatasetTest, GathersNothing) {
  const auto dataset = Dataset::Create({1}, {0}, {1}, 1, {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  dataset->Gather({}, {}, {});
}

TEST(DatasetDeathTest, AnIdOutOfRangeIsABug) {
  const auto dataset = Dataset::Create({1}, {0}, {1}, 1, {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::vector<float> inputs(1);
  std::vector<int32_t> labels(1);
  EXPECT_DEATH(dataset->Gather({1}, absl::MakeSpan(inputs), absl::MakeSpan(labels)), "sample 1");
}

TEST(DatasetTest, WhatDoesNotFitIsNamed) {
  const auto message = [](std::vector<uint8_t> features, std::vector<uint8_t> labels,
                          std::vector<int64_t> shape, int32_t classes,
                          Normalization normalization = {}) {
    const absl::Status status = Dataset::Create(std::move(features), std::move(labels),
                                                std::move(shape), classes, normalization)
                                    .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(message({}, {}, {1}, 2), HasSubstr("at least one sample"));
  EXPECT_THAT(message({1}, {0}, {}, 2), HasSubstr("dimension"));
  EXPECT_THAT(message({1}, {0}, {1, 0}, 2), HasSubstr("(1, 0)"));
  EXPECT_THAT(message({1}, {0}, {int64_t{1} << 62, 4}, 2), HasSubstr("too large"));
  EXPECT_THAT(message({1, 2, 3}, {0, 0}, {2}, 2), HasSubstr("do not make up 3"));
  EXPECT_THAT(message({1, 2}, {0, 2}, {1}, 2), HasSubstr("label 2 of sample 1"));
  EXPECT_THAT(message({1}, {0}, {1}, 0), HasSubstr("class count 0"));
  EXPECT_THAT(message({1}, {0}, {1}, 257), HasSubstr("class count 257"));
  EXPECT_THAT(message({1}, {0}, {1}, 1, {.standard_deviation = 0}), HasSubstr("deviation"));
  EXPECT_THAT(message({1}, {0}, {1}, 1, {.mean = NAN}), HasSubstr("mean"));
}

}  // namespace
}  // namespace muster
