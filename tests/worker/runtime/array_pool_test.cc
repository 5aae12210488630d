#include "worker/runtime/array_pool.h"

#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace muster {
namespace {

TEST(ArrayPoolTest, GivesOutAgainWhatCameBack) {
  ArrayPool pool(1 << 20);
  ArrayMemory first = pool.Take(100'000);
  std::byte* const data = first.data();
  first.Reset();
  EXPECT_EQ(first.data(), nullptr);
  EXPECT_EQ(pool.idle_bytes(), 100'000u);
  const ArrayMemory again = pool.Take(100'000);
  EXPECT_EQ(again.data(), data);
  EXPECT_EQ(pool.idle_bytes(), 0u);
}

TEST(ArrayPoolTest, TakesTheLeastThatIsLargeEnough) {
  ArrayPool pool(1 << 20);
  ArrayMemory small = pool.Take(10'000);
  ArrayMemory middle = pool.Take(20'000);
  ArrayMemory large = pool.Take(40'000);
  const std::byte* const expected = middle.data();
  large.Reset();
  small.Reset();
  middle.Reset();
  const ArrayMemory fits = pool.Take(15'000);
  EXPECT_EQ(fits.data(), expected);
  EXPECT_EQ(pool.idle_bytes(), 50'000u);
  const ArrayMemory fresh = pool.Take(50'000);
  EXPECT_EQ(pool.idle_bytes(), 50'000u) << "nothing that is idle is large enough";
}

TEST(ArrayPoolTest, KeepsNoMoreThanItsLimit) {
  ArrayPool pool(100'000);
  std::vector<ArrayMemory> arrays;
  for (const size_t bytes : {50'000u, 40'000u, 30'000u, 200'000u}) {
    arrays.push_back(pool.Take(bytes));
  }
  const std::byte* const second = arrays[1].data();
  for (ArrayMemory& array : arrays) array.Reset();
  // The first went for the third, and the last is more than all that may be kept.
  EXPECT_EQ(pool.idle_bytes(), 70'000u);
  EXPECT_EQ(pool.Take(40'000).data(), second);
}

TEST(ArrayPoolTest, WhatWasLetGoCanBeWrittenAndReadAgain) {
  ArrayPool pool(8 << 20);
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    const size_t bytes = 1 + random() % (2 << 20);
    ArrayMemory memory = pool.Take(bytes);
    std::vector<std::byte> expected(bytes);
    for (std::byte& byte : expected) byte = static_cast<std::byte>(random());
    std::memcpy(memory.data(), expected.data(), bytes);
    EXPECT_EQ(std::memcmp(memory.data(), expected.data(), bytes), 0);
    EXPECT_LE(pool.idle_bytes(), size_t{8} << 20);
  }
}

TEST(ArrayPoolTest, WhatIsNotLetGoStays) {
  ArrayPool pool(1 << 20);
  ArrayMemory memory = pool.Take(300'000);
  std::memset(memory.data(), 7, 300'000);
  memory.LetGoBehind(150'001);
  for (size_t i = 0; i < 150'001; ++i) ASSERT_EQ(memory.data()[i], std::byte{7});
  std::memset(memory.data(), 8, 300'000);
  memory.LetGoBehind(300'000);
  EXPECT_EQ(memory.data()[299'999], std::byte{8});
}

TEST(ArrayPoolTest, MemoryOfTheHeapKnowsNoPool) {
  ArrayMemory memory(1000);
  std::memset(memory.data(), 1, 1000);
  ArrayMemory other = std::move(memory);
  EXPECT_EQ(memory.data(), nullptr);
  EXPECT_EQ(other.data()[999], std::byte{1});
}

}  // namespace
}  // namespace muster
