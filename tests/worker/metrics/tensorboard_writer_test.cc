// Reads the files back with a decoder that shares nothing with the encoder but the specification.
#include "worker/metrics/tensorboard_writer.h"

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/temporary_directory.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// Bit by bit, from the polynomial.
uint32_t SlowCrc32c(const std::string& bytes) {
  uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const bool carry = ((crc ^ (static_cast<unsigned char>(byte) >> bit)) & 1) != 0;
      crc = (crc >> 1) ^ (carry ? 0x82F63B78u : 0);
    }
  }
  return ~crc;
}

uint32_t Masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

template <typename T>
T Take(std::string& bytes) {
  T value;
  EXPECT_GE(bytes.size(), sizeof(value));
  std::memcpy(&value, bytes.data(), sizeof(value));
  bytes.erase(0, sizeof(value));
  return value;
}

uint64_t TakeVarint(std::string& bytes) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const uint8_t byte = Take<uint8_t>(bytes);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
}

struct Field {
  uint32_t number = 0;
  uint64_t integer = 0;  // varint, fixed64, fixed32
  std::string bytes;     // length-delimited
};

std::vector<Field> Fields(std::string message) {
  std::vector<Field> fields;
  while (!message.empty()) {
    const uint64_t key = TakeVarint(message);
    Field field{.number = static_cast<uint32_t>(key >> 3)};
    switch (key & 7) {
      case 0:
        field.integer = TakeVarint(message);
        break;
      case 1:
        field.integer = Take<uint64_t>(message);
        break;
      case 2: {
        const uint64_t size = TakeVarint(message);
        field.bytes = message.substr(0, size);
        message.erase(0, size);
        break;
      }
      case 5:
        field.integer = Take<uint32_t>(message);
        break;
      default:
        ADD_FAILURE() << "wire type " << (key & 7);
        return fields;
    }
    fields.push_back(field);
  }
  return fields;
}

struct DecodedEvent {
  double wall_time = 0;
  int64_t step = 0;
  std::string file_version;
  std::vector<std::pair<std::string, float>> scalars;
};

DecodedEvent DecodeEvent(const std::string& bytes) {
  DecodedEvent event;
  for (const Field& field : Fields(bytes)) {
    if (field.number == 1) std::memcpy(&event.wall_time, &field.integer, sizeof(double));
    if (field.number == 2) event.step = static_cast<int64_t>(field.integer);
    if (field.number == 3) event.file_version = field.bytes;
    if (field.number != 5) continue;
    for (const Field& value : Fields(field.bytes)) {
      EXPECT_EQ(value.number, 1u);
      std::pair<std::string, float> scalar;
      for (const Field& part : Fields(value.bytes)) {
        const uint32_t word = static_cast<uint32_t>(part.integer);
        if (part.number == 1) scalar.first = part.bytes;
        if (part.number == 2) std::memcpy(&scalar.second, &word, sizeof(float));
      }
      event.scalars.push_back(scalar);
    }
  }
  return event;
}

std::vector<DecodedEvent> DecodeFile(std::string bytes) {
  std::vector<DecodedEvent> events;
  while (!bytes.empty()) {
    const std::string length_bytes = bytes.substr(0, 8);
    const uint64_t length = Take<uint64_t>(bytes);
    EXPECT_EQ(Take<uint32_t>(bytes), Masked(SlowCrc32c(length_bytes)));
    const std::string data = bytes.substr(0, length);
    bytes.erase(0, length);
    EXPECT_EQ(Take<uint32_t>(bytes), Masked(SlowCrc32c(data)));
    events.push_back(DecodeEvent(data));
  }
  return events;
}

class TensorBoardWriterTest : public ::testing::Test {
 protected:
  std::vector<DecodedEvent> Read(const std::string& path) {
    const auto bytes = ReadFile(files_, path, 1 << 20);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    return DecodeFile(*bytes);
  }

  TemporaryDirectory directory_;
  PosixFileSystem files_;
};

TEST_F(TensorBoardWriterTest, WhatIsWrittenReadsBack) {
  const absl::Time start = absl::FromUnixMillis(1'700'000'000'500);
  auto writer =
      TensorBoardWriter::Create(files_, directory_.Path("runs/1"), "node-7", "abc", start);
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_EQ(writer->path(), directory_.Path("runs/1/events.out.tfevents.1700000000.node-7.abc"));
  const std::string long_tag(300, 't');  // its length takes two bytes
  ASSERT_TRUE(
      writer->WriteScalars(start + absl::Seconds(1), 5, {{"a", 1.5f}, {long_tag, -2}}).ok());
  ASSERT_TRUE(writer->WriteScalars(start + absl::Seconds(2), int64_t{1} << 40, {}).ok());

  const auto events = Read(writer->path());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_EQ(events[0].wall_time, 1'700'000'000.5);
  EXPECT_EQ(events[1].step, 5);
  EXPECT_EQ(events[1].wall_time, 1'700'000'001.5);
  EXPECT_THAT(events[1].scalars, ElementsAre(Pair("a", 1.5f), Pair(long_tag, -2.0f)));
  EXPECT_EQ(events[2].step, int64_t{1} << 40);
}

TEST_F(TensorBoardWriterTest, StepAndEvaluationHaveTheirTags) {
  auto writer = TensorBoardWriter::Create(files_, directory_.path(), "h", "i", absl::UnixEpoch());
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE(writer
                  ->Write(absl::UnixEpoch(), StepMetrics{.step = 3,
                                                         .loss = 0.5,
                                                         .learning_rate = 0.25,
                                                         .samples_per_s = 100,
                                                         .epoch = 2,
                                                         .world_size = 4})
                  .ok());
  ASSERT_TRUE(writer
                  ->Write(absl::UnixEpoch(),
                          EvaluationMetrics{.step = 3, .test_loss = 1, .test_accuracy = 0.75})
                  .ok());
  const auto events = Read(writer->path());
  ASSERT_EQ(events.size(), 3u);
  const std::map<std::string, float> scalars(events[1].scalars.begin(), events[1].scalars.end());
  EXPECT_EQ(scalars.at("train/loss"), 0.5f);
  EXPECT_EQ(scalars.at("train/learning_rate"), 0.25f);
  EXPECT_EQ(scalars.at("performance/samples_per_s"), 100.0f);
  EXPECT_EQ(scalars.at("fleet/epoch"), 2.0f);
  EXPECT_EQ(scalars.at("fleet/world_size"), 4.0f);
  EXPECT_THAT(events[2].scalars,
              ElementsAre(Pair("test/loss", 1.0f), Pair("test/accuracy", 0.75f)));
}

}  // namespace
}  // namespace muster
