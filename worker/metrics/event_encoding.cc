#include "worker/metrics/event_encoding.h"

#include <bit>

#include "base/crc32c.h"

namespace muster {
namespace {

// Field numbers of Event, Summary and Summary.Value.
constexpr uint32_t kEventWallTime = 1;
constexpr uint32_t kEventStep = 2;
constexpr uint32_t kEventFileVersion = 3;
constexpr uint32_t kEventSummary = 5;
constexpr uint32_t kSummaryValue = 1;
constexpr uint32_t kValueTag = 1;
constexpr uint32_t kValueSimpleValue = 2;

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

void AppendVarint(uint64_t value, std::string& out) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

void AppendFixed(uint64_t value, int bytes, std::string& out) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

void AppendKey(uint32_t field, WireType type, std::string& out) {
  AppendVarint(field << 3 | type, out);
}

void AppendBytes(uint32_t field, absl::string_view bytes, std::string& out) {
  AppendKey(field, kLengthDelimited, out);
  AppendVarint(bytes.size(), out);
  out.append(bytes.data(), bytes.size());
}

std::string EventAt(double wall_time) {
  std::string event;
  AppendKey(kEventWallTime, kFixed64, event);
  AppendFixed(std::bit_cast<uint64_t>(wall_time), 8, event);
  return event;
}

// TensorFlow's record_writer: a checksum of data that holds checksums is weak, so it is rotated and
// shifted.
uint32_t MaskedCrc(absl::string_view bytes) { return std::rotr(Crc32c(bytes), 15) + 0xa282ead8u; }

}  // namespace

std::string EncodeFileVersionEvent(double wall_time) {
  std::string event = EventAt(wall_time);
  AppendBytes(kEventFileVersion, "brain.Event:2", event);
  return event;
}

std::string EncodeScalarEvent(double wall_time, int64_t step, absl::Span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    AppendBytes(kValueTag, scalar.tag, value);
    AppendKey(kValueSimpleValue, kFixed32, value);
    AppendFixed(std::bit_cast<uint32_t>(scalar.value), 4, value);
    AppendBytes(kSummaryValue, value, summary);
  }
  std::string event = EventAt(wall_time);
  AppendKey(kEventStep, kVarint, event);
  AppendVarint(static_cast<uint64_t>(step), event);
  AppendBytes(kEventSummary, summary, event);
  return event;
}

std::string EncodeTfRecord(absl::string_view data) {
  std::string record;
  AppendFixed(data.size(), 8, record);
  AppendFixed(MaskedCrc(record), 4, record);
  record.append(data.data(), data.size());
  AppendFixed(MaskedCrc(data), 4, record);
  return record;
}

}  // namespace muster
