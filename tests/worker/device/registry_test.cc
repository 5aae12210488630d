#include "worker/device/registry.h"

#include <cstdint>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST(RegistryTest, MakesEveryDeviceItNames) {
  EXPECT_THAT(DeviceNames(), Contains("cpu"));
  for (const std::string& name : DeviceNames()) {
    const auto device = CreateDevice(name, {});
    ASSERT_TRUE(device.ok()) << device.status();
    EXPECT_EQ((*device)->name(), name);
    EXPECT_THAT((*device)->Description(), HasSubstr(name));
  }
}

TEST(RegistryTest, AnUnknownNameListsWhatThereIs) {
  const auto device = CreateDevice("abacus", {});
  EXPECT_EQ(device.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(device.status().message()), HasSubstr("\"abacus\""));
  EXPECT_THAT(std::string(device.status().message()), HasSubstr("cpu"));
}

TEST(RegistryTest, RejectsThreadCountsOutOfRange) {
  for (const int threads : {-1, 0, 1025}) {
    const auto device = CreateDevice("cpu", {.cpu = {.threads = threads}});
    EXPECT_EQ(device.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(device.status().message()), HasSubstr("device.cpu.threads"));
  }
}

TEST(DeviceBufferTest, IsZeroedAlignedAndMovable) {
  const auto device = CreateDevice("cpu", {}).value();
  DeviceBuffer buffer = device->Allocate(1001).value();
  EXPECT_EQ(buffer.bytes(), 1001);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
  for (int i = 0; i < 1001; ++i) ASSERT_EQ(buffer.data()[i], 0);
  uint8_t* const data = buffer.data();
  DeviceBuffer moved = std::move(buffer);
  EXPECT_EQ(moved.data(), data);
  buffer = device->Allocate(8).value();
  moved = std::move(buffer);
  EXPECT_EQ(moved.bytes(), 8);
  EXPECT_EQ(device->Allocate(0).value().bytes(), 0);
}

TEST(DeviceBufferTest, TooMuchMemoryIsAnErrorNotACrash) {
  const auto device = CreateDevice("cpu", {}).value();
  for (const int64_t bytes : {int64_t{-1}, int64_t{1} << 60}) {
    EXPECT_EQ(device->Allocate(bytes).status().code(), absl::StatusCode::kResourceExhausted);
  }
}

}  // namespace
}  // namespace muster
