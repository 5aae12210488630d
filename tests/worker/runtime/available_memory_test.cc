#include "worker/runtime/available_memory.h"

#include "gtest/gtest.h"

namespace muster {
namespace {

TEST(AvailableMemoryTest, IsReadOffTheKernelsTable) {
  EXPECT_EQ(
      MemAvailable("MemTotal:       24638412 kB\nMemAvailable:     102400 kB\nCached: 1 kB\n"),
      100 << 20);
  EXPECT_EQ(MemAvailable("MemTotal:       24638412 kB\n"), std::nullopt);
  EXPECT_EQ(MemAvailable("MemAvailable: much kB\n"), std::nullopt);
  EXPECT_EQ(MemAvailable(""), std::nullopt);
}

TEST(AvailableMemoryTest, ThisMachineHasSome) {
  const std::optional<int64_t> available = AvailableMemory();
  ASSERT_TRUE(available.has_value());
  EXPECT_GT(*available, 1 << 20);
}

}  // namespace
}  // namespace muster
