#include "collectives/transport/shm/arena_mappings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <string>

namespace muster {
namespace {

constexpr int64_t kBytes = 4 << 20;

UniqueFd MakeFile(int64_t bytes = kBytes) {
  UniqueFd file(memfd_create("test", MFD_CLOEXEC));
  EXPECT_TRUE(file.valid());
  EXPECT_EQ(ftruncate(file.get(), bytes), 0);
  return file;
}

TEST(ArenaMappingsTest, AFileIsMappedOnceHoweverItIsOpened) {
  ArenaMappings mappings;
  const UniqueFd file = MakeFile(), another = MakeFile();
  const UniqueFd again(dup(file.get()));
  const auto first = mappings.Map(file, kBytes).value();
  EXPECT_EQ(mappings.Map(again, kBytes).value(), first);
  EXPECT_NE(mappings.Map(another, kBytes).value(), first);
  first->base()[kBytes - 1] = std::byte{42};
  std::byte read{0};
  EXPECT_EQ(pread(file.get(), &read, 1, kBytes - 1), 1);
  EXPECT_EQ(read, std::byte{42});
}

TEST(ArenaMappingsTest, AMappingStaysUntilItIsDroppedWhileNobodyHasIt) {
  ArenaMappings mappings;
  const UniqueFd file = MakeFile();
  std::shared_ptr<ArenaMapping> held = mappings.Map(file, kBytes).value();
  EXPECT_EQ(held->EnterPages(0, kBytes, kBytes), kBytes);
  mappings.DropUnused();
  EXPECT_EQ(mappings.Map(file, kBytes).value(), held);
  const std::weak_ptr<ArenaMapping> seen = held;
  held.reset();
  held = mappings.Map(file, kBytes).value();
  EXPECT_EQ(held, seen.lock());
  EXPECT_EQ(held->EnterPages(0, kBytes, kBytes), 0);  // they are there
  held.reset();
  mappings.DropUnused();
  EXPECT_TRUE(seen.expired());
  EXPECT_EQ(mappings.Map(file, kBytes).value()->EnterPages(0, kBytes, kBytes), kBytes);
}

TEST(ArenaMappingsTest, PagesAreEnteredInPartsEachOnce) {
  ArenaMappings mappings;
  const auto mapping = mappings.Map(MakeFile(), kBytes).value();
  EXPECT_EQ(mapping->EnterPages(5000, 6000, kBytes), 4096);
  EXPECT_EQ(mapping->EnterPages(4096, 8192, kBytes), 0);
  EXPECT_EQ(mapping->EnterPages(2 << 20, 4 << 20, 1 << 20), 1 << 20);
  EXPECT_EQ(mapping->EnterPages(2 << 20, 4 << 20, 4 << 20), 1 << 20);
}

TEST(ArenaMappingsTest, AFileThatIsTooSmallIsAnotherProcesss) {
  ArenaMappings mappings;
  const UniqueFd file = MakeFile();
  const auto mapping = mappings.Map(file, kBytes + 1);
  EXPECT_TRUE(absl::IsUnavailable(mapping.status()));
  EXPECT_THAT(std::string(mapping.status().message()), testing::HasSubstr("4194304 bytes"));
  EXPECT_TRUE(mappings.Map(file, kBytes).ok());
}

}  // namespace
}  // namespace muster
