#include "worker/sync/commit_exchange.h"

#include <cmath>
#include <limits>
#include <random>

#include "gtest/gtest.h"

namespace muster {
namespace {

// What the all-reduce of a step does.
CommitWords Sum(const std::vector<CommitContribution>& contributions) {
  CommitWords sum = {};
  for (const CommitContribution& contribution : contributions) {
    const CommitWords words = EncodeCommit(contribution);
    for (int i = 0; i < kCommitWords; ++i) sum[i] += words[i];
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

TEST(CommitExchangeTest, RefusesWordsThatAreNoSum) {
  CommitWords words = EncodeCommit({.loss_sum = 1, .samples = 4, .correct = 2});
  EXPECT_FALSE(DecodeCommit(absl::MakeSpan(words).subspan(1), 1, 1).ok());
  EXPECT_FALSE(DecodeCommit(EncodeCommit({.samples = 0}), 1, 1).ok());
  EXPECT_FALSE(DecodeCommit(EncodeCommit({.samples = 2, .correct = 3}), 1, 1).ok());
  words[0] = -1;
  EXPECT_FALSE(DecodeCommit(words, 1, 1).ok());
}

}  // namespace
}  // namespace muster
