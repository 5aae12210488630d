#include "proto/rpc/payload_frame.h"

#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace muster {
namespace {

using google::protobuf::io::CodedOutputStream;

// Wire types of protobuf's encoding that are in use.
enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

// Most bytes of a varint: protobuf's parsers take no longer tags and lengths.
constexpr int kShort = 5;
constexpr int kLong = 10;

constexpr uint32_t kPayloadTag = (kPayloadField << 3) | kLength;

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("a message is no valid protobuf message: ", what));
}

// Goes through the pieces of a message from front to back.
class Cursor {
 public:
  explicit Cursor(absl::Span<const grpc::Slice> pieces) : pieces_(pieces) { SkipEmpty(); }

  bool at_end() const { return piece_ == pieces_.size(); }

  std::optional<uint8_t> Byte() {
    if (at_end()) return std::nullopt;
    const uint8_t byte = pieces_[piece_].begin()[offset_];
    Advance(1);
    return byte;
  }

  // Of at most so many bytes.
  std::optional<uint64_t> Varint(int most_bytes) {
    uint64_t value = 0;
    for (int shift = 0; shift < 7 * most_bytes; shift += 7) {
      const std::optional<uint8_t> byte = Byte();
      if (!byte) return std::nullopt;
      value |= uint64_t{*byte & 0x7fu} << shift;
      if ((*byte & 0x80u) == 0) return value;
    }
    return std::nullopt;
  }

  // Appends the next `count` bytes to `to`; false if there are fewer.
  bool Append(uint64_t count, std::string* to) {
    while (count > 0) {
      if (at_end()) return false;
      const uint64_t here = std::min<uint64_t>(count, Left());
      to->append(reinterpret_cast<const char*>(pieces_[piece_].begin()) + offset_, here);
      Advance(here);
      count -= here;
    }
    return true;
  }

  // The next `count` bytes, shared and not copied; false if there are fewer.
  bool Share(uint64_t count, std::vector<grpc::Slice>* to) {
    while (count > 0) {
      if (at_end()) return false;
      const uint64_t here = std::min<uint64_t>(count, Left());
      to->push_back(pieces_[piece_].sub(offset_, offset_ + here));
      Advance(here);
      count -= here;
    }
    return true;
  }

 private:
  size_t Left() const { return pieces_[piece_].size() - offset_; }
  void Advance(size_t count) {
    offset_ += count;
    SkipEmpty();
  }
  void SkipEmpty() {
    while (piece_ < pieces_.size() && offset_ == pieces_[piece_].size()) {
      ++piece_;
      offset_ = 0;
    }
  }

  const absl::Span<const grpc::Slice> pieces_;
  size_t piece_ = 0;
  size_t offset_ = 0;
};

void AppendVarint(uint64_t value, std::string* to) {
  uint8_t bytes[10];
  const uint8_t* const end = CodedOutputStream::WriteVarint64ToArray(value, bytes);
  to->append(reinterpret_cast<const char*>(bytes), end - bytes);
}

// Appends one field of the head, whose tag has been read.
absl::Status TakeHeadField(uint64_t tag, Cursor& cursor, std::string* head) {
  AppendVarint(tag, head);
  bool whole = false;
  switch (tag & 7) {
    case kVarint: {
      const std::optional<uint64_t> value = cursor.Varint(kLong);
      if (!value) return Malformed("a number in it has no end");
      AppendVarint(*value, head);
      return absl::OkStatus();
    }
    case kFixed64:
      whole = cursor.Append(8, head);
      break;
    case kFixed32:
      whole = cursor.Append(4, head);
      break;
    case kLength: {
      const std::optional<uint64_t> length = cursor.Varint(kShort);
      if (!length) return Malformed("a length in it has no end");
      AppendVarint(*length, head);
      whole = cursor.Append(*length, head);
      break;
    }
    default:
      return Malformed(absl::StrCat("wire type ", tag & 7));
  }
  return whole ? absl::OkStatus() : Malformed("it ends within a field");
}

struct Owner {
  std::shared_ptr<const void> memory;
};

}  // namespace

Payload::Payload(std::vector<grpc::Slice> pieces) : pieces_(std::move(pieces)) {
  for (const grpc::Slice& piece : pieces_) size_ += static_cast<int64_t>(piece.size());
}

void Payload::Read(absl::Span<std::byte> to) {
  MUSTER_CHECK(static_cast<int64_t>(to.size()) <= size_);
  size_ -= static_cast<int64_t>(to.size());
  while (!to.empty()) {
    const grpc::Slice& piece = pieces_[piece_];
    const size_t here = std::min(to.size(), piece.size() - offset_);
    std::memcpy(to.data(), piece.begin() + offset_, here);
    to.remove_prefix(here);
    offset_ += here;
    if (offset_ == piece.size()) {
      pieces_[piece_++] = grpc::Slice();  // read memory goes back at once
      offset_ = 0;
    }
  }
}

std::vector<absl::Span<const std::byte>> Payload::Pieces() const {
  std::vector<absl::Span<const std::byte>> spans;
  for (size_t i = piece_; i < pieces_.size(); ++i) {
    const size_t from = i == piece_ ? offset_ : 0;
    if (pieces_[i].size() == from) continue;
    spans.emplace_back(reinterpret_cast<const std::byte*>(pieces_[i].begin()) + from,
                       pieces_[i].size() - from);
  }
  return spans;
}

grpc::Slice SliceOver(absl::Span<const std::byte> memory, std::shared_ptr<const void> owner) {
  return grpc::Slice(
      const_cast<std::byte*>(memory.data()), memory.size(),
      [](void* held) { delete static_cast<Owner*>(held); }, new Owner{std::move(owner)});
}

grpc::ByteBuffer EncodeFrame(const google::protobuf::MessageLite& head,
                             absl::Span<const grpc::Slice> payload) {
  std::string front;
  head.AppendToString(&front);
  uint64_t size = 0;
  for (const grpc::Slice& slice : payload) size += slice.size();
  if (size == 0) {
    const grpc::Slice only(front);
    return grpc::ByteBuffer(&only, 1);
  }
  AppendVarint(kPayloadTag, &front);
  AppendVarint(size, &front);
  std::vector<grpc::Slice> slices = {grpc::Slice(front)};
  slices.insert(slices.end(), payload.begin(), payload.end());
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::Status DecodeFrame(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite* head,
                         Payload* payload) {
  std::vector<grpc::Slice> pieces;
  if (!bytes.Dump(&pieces).ok()) return Malformed("it cannot be read");
  Cursor cursor(pieces);
  std::string head_bytes;
  std::optional<std::vector<grpc::Slice>> data;
  while (!cursor.at_end()) {
    const std::optional<uint64_t> tag = cursor.Varint(kShort);
    if (!tag) return Malformed("a tag in it has no end");
    if (*tag != kPayloadTag) {
      MUSTER_RETURN_IF_ERROR(TakeHeadField(*tag, cursor, &head_bytes));
      continue;
    }
    if (data.has_value()) return Malformed("its data come twice");
    const std::optional<uint64_t> length = cursor.Varint(kShort);
    if (!length) return Malformed("the length of its data has no end");
    data.emplace();
    if (!cursor.Share(*length, &*data)) return Malformed("it ends within its data");
  }
  // What a protobuf parser minds beside the wire format: wrong UTF-8, and field number 0.
  if (!head->ParseFromString(head_bytes)) return Malformed("a field of it is unreadable");
  *payload = Payload(data.has_value() ? *std::move(data) : std::vector<grpc::Slice>());
  return absl::OkStatus();
}

}  // namespace muster
