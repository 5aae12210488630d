#include "collectives/transport/shm/shared_arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "base/random.h"

namespace muster {
namespace {

std::shared_ptr<SharedArena> MakeArena(int64_t capacity) {
  SharedArena::Options options;
  options.capacity_bytes = capacity;
  auto arena = SharedArena::Create(options);
  EXPECT_TRUE(arena.ok()) << arena.status();
  return *std::move(arena);
}

// The file as another process sees it.
class View {
 public:
  explicit View(const SharedArena& arena) : bytes_(static_cast<size_t>(arena.capacity())) {
    base_ = static_cast<std::byte*>(
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, arena.fd(), 0));
    EXPECT_NE(base_, MAP_FAILED);
  }
  ~View() { munmap(base_, bytes_); }
  std::byte* at(int64_t offset) const { return base_ + offset; }

 private:
  const size_t bytes_;
  std::byte* base_;
};

TEST(SharedArenaTest, AnotherMappingOfTheFileSeesABufferAtItsOffset) {
  const auto arena = MakeArena(8 << 20);
  const View view(*arena);
  auto buffer = arena->Allocate(10000);
  ASSERT_TRUE(buffer.ok());
  std::memset(buffer->data(), 0x5a, 10000);
  const auto offset = arena->OffsetOf(buffer->data() + 9999, 1);
  ASSERT_TRUE(offset.has_value());
  EXPECT_EQ(*view.at(*offset), std::byte{0x5a});
  *view.at(*offset) = std::byte{7};
  EXPECT_EQ(buffer->data()[9999], std::byte{7});
}

TEST(SharedArenaTest, OffsetOfKnowsOnlyWholeBuffersOfItsOwn) {
  const auto arena = MakeArena(8 << 20);
  auto buffer = arena->Allocate(4096);
  ASSERT_TRUE(buffer.ok());
  EXPECT_TRUE(arena->OffsetOf(buffer->data(), 4096).has_value());
  EXPECT_FALSE(arena->OffsetOf(buffer->data(), 4097).has_value());
  EXPECT_FALSE(arena->OffsetOf(buffer->data() - 1, 1).has_value());
  EXPECT_FALSE(arena->OffsetOf(buffer->data() + 4096, 1).has_value());
  int elsewhere = 0;
  EXPECT_FALSE(arena->OffsetOf(&elsewhere, sizeof(elsewhere)).has_value());
}

TEST(SharedArenaTest, BuffersNeverOverlapAndFreedRangesAreUsedAgain) {
  const auto arena = MakeArena(64 << 20);
  const RandomStream random(3, "arena");
  struct Held {
    SharedBuffer buffer;
    std::byte mark;
  };
  std::vector<Held> held;
  for (uint64_t i = 0; i < 2000; ++i) {
    const uint64_t bits = random.Bits(i);
    if (held.size() > 40 || (bits % 3 == 0 && !held.empty())) {
      const size_t which = (bits >> 8) % held.size();
      for (int64_t k = 0; k < held[which].buffer.size(); k += 511) {
        ASSERT_EQ(held[which].buffer.data()[k], held[which].mark);
      }
      held.erase(held.begin() + static_cast<ptrdiff_t>(which));
      continue;
    }
    auto buffer = arena->Allocate(static_cast<int64_t>((bits >> 8) % 700000));
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    const auto mark = static_cast<std::byte>(i);
    std::memset(buffer->data(), static_cast<int>(mark), static_cast<size_t>(buffer->size()));
    held.push_back({*std::move(buffer), mark});
  }
  held.clear();
  EXPECT_TRUE(arena->Allocate(64 << 20).ok()) << "free ranges were not joined";
}

TEST(SharedArenaTest, MoreThanThereIsSaysHowMuchThereIs) {
  const auto arena = MakeArena(4 << 20);
  auto most = arena->Allocate(3 << 20);
  ASSERT_TRUE(most.ok());
  const auto status = arena->Allocate(2 << 20).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("1048576"), std::string::npos) << status;
  EXPECT_EQ(arena->Allocate(int64_t{1} << 60).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(SharedArenaTest, RenewKeepsAddressAndContentsAndLeavesTheOldPagesBehind) {
  const auto arena = MakeArena(16 << 20);
  const View view(*arena);
  auto buffer = arena->Allocate(100000);
  ASSERT_TRUE(buffer.ok());
  std::byte* const address = buffer->data();
  std::memset(address, 1, 100000);
  const int64_t old_offset = *arena->OffsetOf(address, 100000);
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(buffer->Renew().ok());
    EXPECT_EQ(buffer->data(), address);
    EXPECT_EQ(address[99999], std::byte{1});
    // A write to the old pages does not get through.
    *view.at(old_offset) = std::byte{66};
    EXPECT_EQ(address[0], std::byte{1});
    // One to the new place does.
    const auto offset = arena->OffsetOf(address, 1);
    ASSERT_TRUE(offset.has_value());
    EXPECT_NE(*offset, old_offset);
    *view.at(*offset + 5) = std::byte{9};
    EXPECT_EQ(address[5], std::byte{9});
    address[5] = std::byte{1};
  }
  // Nothing allocated later lies on the old pages.
  std::vector<SharedBuffer> others;
  buffer = SharedBuffer();
  while (true) {
    auto other = arena->Allocate(100000);
    if (!other.ok()) break;
    const int64_t offset = *arena->OffsetOf(other->data(), 100000);
    EXPECT_TRUE(offset + 100000 <= old_offset || old_offset + 100000 <= offset);
    others.push_back(*std::move(other));
  }
  EXPECT_GT(others.size(), 100u);
}

TEST(SharedArenaTest, AnAbandonedBufferIsUsedAgainOnceItsUsersAreGone) {
  const auto arena = MakeArena(4 << 20);
  auto buffer = arena->Allocate(4 << 20);
  ASSERT_TRUE(buffer.ok());
  bool gone = false;
  arena->Abandon(*std::move(buffer), [&gone] { return gone; });
  EXPECT_FALSE(arena->Allocate(4096).ok());
  gone = true;
  EXPECT_TRUE(arena->Allocate(4 << 20).ok());
}

}  // namespace
}  // namespace muster
