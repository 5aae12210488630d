#include "server/parameter_server/core/buffer_pool.h"

#include <optional>
#include <random>

#include "gtest/gtest.h"
#include "tests/state/random_layout.h"

namespace muster {
namespace {

TEST(BufferPoolTest, AccountsForEveryByteAndUsesMemoryAgain) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const int64_t budget = 200'000;
    SimpleMemoryAccount account(budget);
    {
      BufferPool pool(account, Draw(random, 0, 50'000));
      const int64_t kept = Draw(random, 0, 1) * 10'000;
      ASSERT_TRUE(pool.TryReserve(kept, /*keep=*/true));
      std::vector<PooledFloats> arrays;
      int64_t most = kept;
      for (int i = 0; i < 300; ++i) {
        if (arrays.empty() || Draw(random, 0, 2) > 0) {
          const int64_t count = Draw(random, 1, 3000);
          PooledFloats array = pool.TryTake(count);
          if (array) {
            ASSERT_EQ(array.count(), count);
            ASSERT_EQ(array.bytes(), BufferPool::BytesFor(count));
            ASSERT_GE(array.bytes(), count * 4);
            ASSERT_LE(array.bytes(), std::max<int64_t>(64, count * 5 + 4));
            ASSERT_EQ(reinterpret_cast<uintptr_t>(array.data()) % 64, 0u);
            std::fill(array.span().begin(), array.span().end(), 1.0f);
            arrays.push_back(std::move(array));
          } else {
            ASSERT_GT(account.taken_bytes() + BufferPool::BytesFor(count), budget);
          }
        } else {
          const size_t at = Draw(random, 0, static_cast<int64_t>(arrays.size()) - 1);
          std::swap(arrays[at], arrays.back());
          arrays.pop_back();
        }
        int64_t used = 0;
        for (const PooledFloats& array : arrays) used += array.bytes();
        ASSERT_EQ(pool.used_bytes(), used);
        // What is reserved and not yet used is taken as well.
        ASSERT_GE(account.taken_bytes(), used + pool.idle_bytes());
        ASSERT_GE(account.taken_bytes(), kept);
        ASSERT_LE(account.taken_bytes(), used + pool.idle_bytes() + kept);
        ASSERT_LE(account.taken_bytes(), budget);
        most = std::max(most, account.taken_bytes());
      }
      ASSERT_GT(most, kept);
    }
    ASSERT_EQ(account.taken_bytes(), 0);
  }
}

TEST(BufferPoolTest, GivesTheSameMemoryAgain) {
  SimpleMemoryAccount account(1 << 20);
  BufferPool pool(account, 1 << 20);
  PooledFloats first = pool.Take(1000);
  const float* const memory = first.data();
  first.Reset();
  EXPECT_EQ(pool.idle_bytes(), BufferPool::BytesFor(1000));
  EXPECT_EQ(pool.Take(1010).data(), memory) << "of the same class";
}

TEST(BufferPoolTest, GivesUpIdleMemoryWhereTheAccountNeedsIt) {
  SimpleMemoryAccount account(10'000);
  BufferPool pool(account, 1 << 20);
  pool.Take(2000).Reset();
  EXPECT_EQ(account.taken_bytes(), BufferPool::BytesFor(2000));
  const PooledFloats small = pool.TryTake(700);
  EXPECT_TRUE(small);
  EXPECT_EQ(pool.idle_bytes(), 0);
  EXPECT_FALSE(pool.TryTake(3000));
  const PooledFloats beyond = pool.Take(3000);
  EXPECT_GT(account.taken_bytes(), account.budget_bytes());
}

TEST(MemoryAccountTest, TakenBytesGoBackOnce) {
  SimpleMemoryAccount account(100);
  {
    TakenBytes first(account, 60);
    TakenBytes second = std::move(first);
    TakenBytes third;
    third = std::move(second);
    EXPECT_EQ(account.taken_bytes(), 60);
    EXPECT_FALSE(account.TryTake(41));
    EXPECT_TRUE(account.TryTake(40));
    account.Return(40);
  }
  EXPECT_EQ(account.taken_bytes(), 0);
}

}  // namespace
}  // namespace muster
