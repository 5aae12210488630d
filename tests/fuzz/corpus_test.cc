// Every fuzz target over its corpus and over deterministic mutations of it: what the fuzzers of
// preset asan search at length, checked briefly by every compiler.
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "absl/strings/match.h"
#include "base/random.h"
#include "gtest/gtest.h"
#include "tests/fuzz/targets.h"

namespace muster {
namespace {

constexpr int kMutations = 5'000;

// By file name. ctest runs this in the root of the sources.
std::map<std::string, std::string> ReadCorpus(const FuzzTarget& target) {
  std::map<std::string, std::string> corpus;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path("tests/fuzz/corpus") / target.name)) {
    std::ifstream stream(entry.path(), std::ios::binary);
    std::ostringstream bytes;
    bytes << stream.rdbuf();
    corpus[entry.path().filename().string()] = bytes.str();
  }
  return corpus;
}

// One to four changes: a bit, a byte, bytes removed, repeated or taken from `other`.
std::string Mutate(std::string bytes, const std::string& other, std::mt19937_64& random) {
  const auto below = [&random](size_t bound) { return bound == 0 ? 0 : random() % bound; };
  for (size_t n = 1 + below(4); n > 0; --n) {
    const size_t at = below(bytes.size());
    switch (below(6)) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        if (!bytes.empty()) bytes[at] = "\x00\x01\x7f\x80\xff\n\"{"[below(8)];
        break;
      case 2:
        bytes.insert(at, 1, static_cast<char>(random()));
        break;
      case 3:
        bytes.erase(at, 1 + below(4));
        break;
      case 4:
        bytes.insert(at, bytes.substr(at, below(20)));
        break;
      default:
        bytes.insert(at, other.substr(below(other.size()), below(20)));
        break;
    }
  }
  return bytes;
}

class FuzzCorpusTest : public ::testing::TestWithParam<const FuzzTarget*> {};

TEST_P(FuzzCorpusTest, WhatTheEncodersMakeIsAccepted) {
  for (const std::string& seed : GetParam()->seeds()) {
    EXPECT_TRUE(GetParam()->run(seed) == FuzzOutcome::kAccepted) << seed;
  }
}

// Seeds are inputs that an earlier state of the encoders made: formats do not change unnoticed.
TEST_P(FuzzCorpusTest, TheCorpusHolds) {
  int seeds = 0;
  for (const auto& [name, bytes] : ReadCorpus(*GetParam())) {
    SCOPED_TRACE(name);
    const FuzzOutcome outcome = GetParam()->run(bytes);
    if (absl::StartsWith(name, "seed-")) {
      ++seeds;
      EXPECT_TRUE(outcome == FuzzOutcome::kAccepted);
    }
  }
  EXPECT_GT(seeds, 0) << "muster-fuzz-seeds writes them";
}

TEST_P(FuzzCorpusTest, MutationsAreAcceptedOrRefused) {
  const FuzzTarget& target = *GetParam();
  std::vector<std::string> inputs = target.seeds();
  for (auto& [name, bytes] : ReadCorpus(target)) inputs.push_back(std::move(bytes));
  std::mt19937_64 random(StableHash(target.name));
  int refused = 0;
  for (int i = 0; i < kMutations; ++i) {
    const std::string& input = inputs[random() % inputs.size()];
    const std::string& other = inputs[random() % inputs.size()];
    if (target.run(Mutate(input, other, random)) == FuzzOutcome::kRefused) ++refused;
  }
  if (target.refuses) {
    EXPECT_GT(refused, kMutations / 100);
  } else {
    EXPECT_EQ(refused, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(, FuzzCorpusTest, ::testing::ValuesIn(kAllFuzzTargets),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace muster
