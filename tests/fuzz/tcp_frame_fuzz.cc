// What travels on a formed mesh: headers of data frames, and the stream of control frames.
#include <optional>

#include "absl/types/span.h"
#include "base/check.h"
#include "collectives/transport/tcp_frame.h"
#include "collectives/transport/transport.h"
#include "tests/fuzz/targets.h"

namespace muster {
namespace {

using absl::StatusCode;

FuzzOutcome RunDataHeader(absl::string_view bytes) {
  // The connection hands over exactly a header's bytes.
  std::string header_bytes(bytes.substr(0, kDataHeaderBytes));
  header_bytes.resize(kDataHeaderBytes);
  const absl::StatusOr<TcpDataHeader> header = DecodeDataHeader(absl::MakeConstSpan(
      reinterpret_cast<const std::byte*>(header_bytes.data()), header_bytes.size()));
  if (!header.ok()) return Refused(header.status(), {StatusCode::kInvalidArgument});
  MUSTER_CHECK(header->length >= 0 && header->length <= kMaxMessageBytes);
  const int padding = PaddingOf(header->length);
  MUSTER_CHECK(padding >= 0 && padding < kFrameAlignment);
  MUSTER_CHECK((header->length + padding) % kFrameAlignment == 0);
  MUSTER_CHECK(DecodeDataHeader(EncodeDataHeader(*header)).value() == *header);
  return FuzzOutcome::kAccepted;
}

std::vector<std::string> DataHeaderSeeds() {
  std::vector<std::string> seeds;
  for (const TcpDataHeader& header :
       {TcpDataHeader{.tag = 0, .length = 0}, TcpDataHeader{.tag = 17, .length = 4'096},
        TcpDataHeader{.tag = ~uint64_t{0}, .length = kMaxMessageBytes}}) {
    const auto bytes = EncodeDataHeader(header);
    seeds.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return seeds;
}

// All frames of the stream, which arrives in pieces of `piece` bytes. Nothing if it is refused.
std::optional<std::string> TakeAll(absl::string_view bytes, size_t piece) {
  std::string arrived;
  std::string frames;
  while (!bytes.empty()) {
    arrived.append(bytes.data(), std::min(piece, bytes.size()));
    bytes.remove_prefix(std::min(piece, bytes.size()));
    while (true) {
      const absl::StatusOr<std::optional<TcpControlFrame>> frame = TakeControlFrame(&arrived);
      if (!frame.ok()) {
        Refused(frame.status(), {StatusCode::kInvalidArgument});
        return std::nullopt;
      }
      if (!frame->has_value()) break;
      // An abort is an error, and stays one when it is made a status.
      MUSTER_CHECK((*frame)->kind != TcpControlFrame::Kind::kAbort ||
                   (*frame)->code != StatusCode::kOk);
      MUSTER_CHECK((*frame)->text.size() <= kMaxControlText);
      MUSTER_CHECK(!(*frame)->culprit.has_value() || *(*frame)->culprit >= 0);
      frames += EncodeControlFrame(**frame);
    }
    // What is kept of an incomplete frame is bounded.
    MUSTER_CHECK(arrived.size() < kControlHeaderBytes + kMaxControlText);
  }
  return frames;
}

FuzzOutcome RunControl(absl::string_view bytes) {
  const std::optional<std::string> at_once = TakeAll(bytes, kControlHeaderBytes);
  // The pieces in which it arrives change nothing.
  MUSTER_CHECK(at_once == TakeAll(bytes, 1));
  if (!at_once.has_value()) return FuzzOutcome::kRefused;
  // What was understood encodes to itself.
  MUSTER_CHECK(TakeAll(*at_once, kControlHeaderBytes) == at_once);
  return FuzzOutcome::kAccepted;
}

std::vector<std::string> ControlSeeds() {
  const std::string goodbye = EncodeControlFrame({});
  const std::string abort = EncodeControlFrame({.kind = TcpControlFrame::Kind::kAbort,
                                                .code = StatusCode::kUnavailable,
                                                .culprit = 3,
                                                .text = "rank 3 is gone"});
  return {goodbye, abort, goodbye + abort,
          EncodeControlFrame({.kind = TcpControlFrame::Kind::kAbort,
                              .code = StatusCode::kUnauthenticated,
                              .text = std::string(2'000, 'x')})};
}

}  // namespace

const FuzzTarget kTcpDataHeaderTarget = {"tcp_data_header", RunDataHeader, DataHeaderSeeds,
                                         kDataHeaderBytes};
const FuzzTarget kTcpControlTarget = {"tcp_control", RunControl, ControlSeeds, 4'096};

}  // namespace muster
