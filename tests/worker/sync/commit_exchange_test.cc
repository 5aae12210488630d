#include "worker/sync/commit_exchange.h"

#include <cmath>
#include <limits>
#include <random>

#include "gtest/gtest.h"

namespace muster {
namespace {

// What the all-reduce of a step does.
std::vector<int64_t> Sum(const std::vector<CommitContribution>& contributions) {
  std::vector<int64_t> sum(EncodeCommit(contributions[0]).size());
  for (const CommitContribution& contribution : contributions) {
    const std::vector<int64_t> words = EncodeCommit(contribution);
    EXPECT_EQ(words.size(), sum.size());
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += words[i];
  }
  return sum;
}

// `gradient` cut into `ranks` parts at random places, the losses spread alike.
std::vector<CommitContribution> Spread(const std::vector<float>& gradient,
                                       const std::vector<double>& losses, int ranks,
                                       std::mt19937& random) {
  std::vector<CommitContribution> parts(ranks);
  size_t begin = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const size_t end = rank + 1 == ranks
                           ? gradient.size()
                           : std::uniform_int_distribution<size_t>(begin, gradient.size())(random);
    parts[rank].squared_gradient.Add(absl::MakeSpan(gradient).subspan(begin, end - begin));
    begin = end;
  }
  for (const double loss : losses) {
    CommitContribution& part = parts[random() % ranks];
    part.loss_sum += loss;
    ++part.samples;
    ++part.correct;
  }
  return parts;
}

TEST(CommitExchangeTest, RecordDoesNotDependOnHowTheWorkIsSpread) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> gradient(1013);
  for (float& value : gradient) value = normal(random);
  // Multiples of 2^-20 add up exactly.
  std::vector<double> losses(40);
  for (double& loss : losses) loss = static_cast<double>(random() % (1 << 22)) * 0x1p-20;
  const auto one = DecodeCommit(Sum(Spread(gradient, losses, 1, random)), 7, 5);
  ASSERT_TRUE(one.ok()) << one.status();
  long double square = 0;
  for (const float value : gradient) square += static_cast<long double>(value) * value;
  EXPECT_NEAR(one->gradient_norm, std::sqrt(static_cast<double>(square)) / 40, 1e-12);
  EXPECT_EQ(one->samples, 40);
  EXPECT_EQ(one->step, 7);
  EXPECT_EQ(one->epoch, 5u);
  EXPECT_TRUE(one->finite);
  EXPECT_FALSE(one->pause);
  for (int ranks = 2; ranks <= 9; ++ranks) {
    const auto many = DecodeCommit(Sum(Spread(gradient, losses, ranks, random)), 7, 5);
    ASSERT_TRUE(many.ok()) << many.status();
    EXPECT_EQ(*many, *one) << ranks << " ranks";
  }
}

TEST(CommitExchangeTest, OneBadRankMakesTheStepNonfinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const double loss : {std::nan(""), HUGE_VAL, -HUGE_VAL, 1e300}) {
    std::vector<CommitContribution> parts(3);
    for (auto& part : parts) part.samples = 1;
    parts[1].loss_sum = loss;
    const auto record = DecodeCommit(Sum(parts), 1, 1);
    ASSERT_TRUE(record.ok());
    EXPECT_FALSE(record->finite) << loss;
    EXPECT_TRUE(std::isnan(record->loss_sum));
  }
  for (const float value : {nan, infinity, -infinity}) {
    std::vector<CommitContribution> parts(3);
    for (auto& part : parts) part.samples = 1;
    parts[2].squared_gradient.Add({value});
    const auto record = DecodeCommit(Sum(parts), 1, 1);
    ASSERT_TRUE(record.ok());
    EXPECT_FALSE(record->finite) << value;
    EXPECT_EQ(record->loss_sum, 0);
  }
}

TEST(CommitExchangeTest, AnyRankMayAskForAPause) {
  for (int asking = 0; asking < 3; ++asking) {
    std::vector<CommitContribution> parts(3);
    for (auto& part : parts) part.samples = 2;
    parts[asking].pause = true;
    const auto record = DecodeCommit(Sum(parts), 1, 1);
    ASSERT_TRUE(record.ok());
    EXPECT_TRUE(record->pause);
  }
}

// Two tensors, each on several ranks; the record has |parameters| / |update| of each.
TEST(CommitExchangeTest, TensorsHaveOneFactorHoweverTheyAreCut) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> parameters[2], updates[2];
  double expected[2];
  for (int t = 0; t < 2; ++t) {
    long double squares[2] = {0, 0};
    for (int i = 0; i < 500; ++i) {
      parameters[t].push_back(normal(random) * static_cast<float>(t + 1));
      updates[t].push_back(normal(random));
      squares[0] += static_cast<long double>(parameters[t].back()) * parameters[t].back();
      squares[1] += static_cast<long double>(updates[t].back()) * updates[t].back();
    }
    expected[t] = std::sqrt(static_cast<double>(squares[0] / squares[1]));
  }
  std::vector<double> first;
  for (const int ranks : {1, 2, 3, 7}) {
    std::vector<CommitContribution> parts(ranks);
    for (CommitContribution& part : parts) {
      part.samples = 1;
      part.tensor_sums = TensorSums(2);
    }
    for (int t = 0; t < 2; ++t) {
      for (size_t i = 0; i < parameters[t].size(); ++i) {
        TensorSums::Entry& entry = parts[random() % ranks].tensor_sums[t];
        entry.parameters.Add(absl::MakeConstSpan(&parameters[t][i], 1));
        entry.update.Add(absl::MakeConstSpan(&updates[t][i], 1));
      }
    }
    const auto record = DecodeCommit(Sum(parts), 1, 1, 2);
    ASSERT_TRUE(record.ok()) << record.status();
    ASSERT_EQ(record->tensor_factors.size(), 2u);
    for (int t = 0; t < 2; ++t) EXPECT_NEAR(record->tensor_factors[t], expected[t], 1e-12);
    if (first.empty()) first = record->tensor_factors;
    EXPECT_EQ(record->tensor_factors, first) << ranks << " ranks";
    EXPECT_FALSE(DecodeCommit(Sum(parts), 1, 1, 1).ok());
    parts[0].loss_sum = std::nan("");
    EXPECT_TRUE(DecodeCommit(Sum(parts), 1, 1, 2)->tensor_factors.empty());
  }
}

TEST(CommitExchangeTest, RefusesWordsThatAreNoSum) {
  std::vector<int64_t> words = EncodeCommit({.loss_sum = 1, .samples = 4, .correct = 2});
  EXPECT_FALSE(DecodeCommit(absl::MakeSpan(words).subspan(1), 1, 1).ok());
  EXPECT_FALSE(DecodeCommit(EncodeCommit({.samples = 0}), 1, 1).ok());
  EXPECT_FALSE(DecodeCommit(EncodeCommit({.samples = 2, .correct = 3}), 1, 1).ok());
  words[0] = -1;
  EXPECT_FALSE(DecodeCommit(words, 1, 1).ok());
  std::vector<int64_t> sums = EncodeCommit({.samples = 4, .tensor_sums = TensorSums(1)});
  EXPECT_TRUE(DecodeCommit(sums, 1, 1, 1).ok());
  sums.back() = -1;
  EXPECT_FALSE(DecodeCommit(sums, 1, 1, 1).ok());
}

}  // namespace
}  // namespace muster
