#include "collectives/transport/tcp_frame.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "collectives/transport/transport.h"
#include "collectives/transport/wire.h"

namespace muster {
namespace {

constexpr uint64_t kDataMagic = 0x61746164'7274736dULL;  // "mstrdata"
constexpr uint32_t kControlMagic = 0x7274636d;           // "mctr"
constexpr uint32_t kMaxStatusCode = 16;                  // kUnauthenticated

}  // namespace

std::array<std::byte, kDataHeaderBytes> EncodeDataHeader(const TcpDataHeader& header) {
  std::array<std::byte, kDataHeaderBytes> bytes;
  std::byte* out = PutInteger(bytes.data(), kDataMagic);
  out = PutInteger(out, header.tag);
  PutInteger(out, header.length);
  return bytes;
}

absl::StatusOr<TcpDataHeader> DecodeDataHeader(absl::Span<const std::byte> bytes) {
  uint64_t magic = 0;
  TcpDataHeader header;
  const std::byte* in = GetInteger(bytes.data(), &magic);
  in = GetInteger(in, &header.tag);
  GetInteger(in, &header.length);
  if (magic != kDataMagic) return absl::InvalidArgumentError("bytes that are no frame header");
  if (header.length < 0 || header.length > kMaxMessageBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", header.length, " bytes; the limit is ", kMaxMessageBytes));
  }
  return header;
}

std::string EncodeControlFrame(const TcpControlFrame& frame) {
  const auto text = absl::string_view(frame.text).substr(0, kMaxControlText);
  std::array<std::byte, kControlHeaderBytes> bytes = {};
  std::byte* out = PutInteger(bytes.data(), kControlMagic);
  out = PutInteger(out, static_cast<uint8_t>(frame.kind));
  out = PutInteger(out, static_cast<uint8_t>(frame.code));
  out = PutInteger(out, static_cast<uint16_t>(text.size()));
  PutInteger(out, frame.culprit.value_or(-1));
  return absl::StrCat(absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
                      text);
}

absl::StatusOr<std::optional<TcpControlFrame>> TakeControlFrame(std::string* bytes) {
  if (bytes->size() < kControlHeaderBytes) return std::nullopt;
  uint32_t magic = 0;
  uint8_t kind = 0, code = 0;
  uint16_t text_bytes = 0;
  Rank culprit = -1;
  const std::byte* in = GetInteger(reinterpret_cast<const std::byte*>(bytes->data()), &magic);
  in = GetInteger(in, &kind);
  in = GetInteger(in, &code);
  in = GetInteger(in, &text_bytes);
  GetInteger(in, &culprit);
  // An abort without an error would be taken for no abort at all.
  const bool aborts = kind == static_cast<uint8_t>(TcpControlFrame::Kind::kAbort);
  if (magic != kControlMagic || kind < 1 || kind > 2 || code > kMaxStatusCode ||
      (aborts && code == 0) || text_bytes > kMaxControlText) {
    return absl::InvalidArgumentError("bytes that are no control frame");
  }
  if (bytes->size() < kControlHeaderBytes + size_t{text_bytes}) return std::nullopt;
  TcpControlFrame frame;
  frame.kind = static_cast<TcpControlFrame::Kind>(kind);
  frame.code = static_cast<absl::StatusCode>(code);
  if (culprit >= 0) frame.culprit = culprit;
  frame.text = bytes->substr(kControlHeaderBytes, text_bytes);
  bytes->erase(0, kControlHeaderBytes + size_t{text_bytes});
  return frame;
}

}  // namespace muster
