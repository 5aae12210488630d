#include "collectives/transport/tcp_handshake.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "collectives/transport/wire.h"

namespace muster {
namespace {

constexpr uint64_t kHelloMagic = 0x6f6c6c656872746dULL;   // "mtrhello"
constexpr uint64_t kAnswerMagic = 0x727773616872746dULL;  // "mtrhaswr"

// Guards against a hello that was damaged or composed by chance; not against malice.
uint64_t Checksum(absl::Span<const std::byte> bytes) {
  return StableHash(absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

}  // namespace

std::array<std::byte, kHelloBytes> EncodeHello(const TcpHello& hello) {
  std::array<std::byte, kHelloBytes> bytes = {};
  std::byte* out = bytes.data();
  out = PutInteger(out, kHelloMagic);
  out = PutInteger(out, kTcpProtocolVersion);
  out = PutInteger(out, uint32_t{kHelloBytes});
  out = PutInteger(out, hello.token_hash);
  out = PutInteger(out, hello.epoch);
  out = PutInteger(out, hello.from.value);
  out = PutInteger(out, hello.to.value);
  out = PutInteger(out, hello.from_rank);
  out = PutInteger(out, hello.to_rank);
  out = PutInteger(out, hello.world_size);
  out = PutInteger(out, hello.channel);
  out = PutInteger(out, hello.channels);
  PutInteger(bytes.data() + kHelloBytes - 8,
             Checksum(absl::MakeConstSpan(bytes.data(), kHelloBytes - 8)));
  return bytes;
}

absl::StatusOr<TcpHello> DecodeHello(absl::Span<const std::byte> bytes) {
  if (bytes.size() != kHelloBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a hello has ", kHelloBytes, " bytes, not ", bytes.size()));
  }
  uint64_t magic = 0;
  uint32_t version = 0, length = 0;
  const std::byte* in = GetInteger(bytes.data(), &magic);
  in = GetInteger(in, &version);
  in = GetInteger(in, &length);
  if (magic != kHelloMagic || length != kHelloBytes) {
    return absl::InvalidArgumentError("not a hello");
  }
  if (version != kTcpProtocolVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("data-plane protocol version ", version, ", expected ", kTcpProtocolVersion));
  }
  uint64_t checksum = 0;
  GetInteger(bytes.data() + kHelloBytes - 8, &checksum);
  if (checksum != Checksum(bytes.first(kHelloBytes - 8))) {
    return absl::InvalidArgumentError("a hello whose checksum is wrong");
  }
  TcpHello hello;
  in = GetInteger(in, &hello.token_hash);
  in = GetInteger(in, &hello.epoch);
  in = GetInteger(in, &hello.from.value);
  in = GetInteger(in, &hello.to.value);
  in = GetInteger(in, &hello.from_rank);
  in = GetInteger(in, &hello.to_rank);
  in = GetInteger(in, &hello.world_size);
  in = GetInteger(in, &hello.channel);
  in = GetInteger(in, &hello.channels);
  const bool ranks_ok = hello.world_size >= 2 && hello.world_size <= kMaxTcpWorldSize &&
                        hello.from_rank >= 0 && hello.from_rank < hello.world_size &&
                        hello.to_rank >= 0 && hello.to_rank < hello.world_size &&
                        hello.to_rank != hello.from_rank;
  if (!ranks_ok || hello.epoch == 0 || hello.channels < 1 || hello.channels > kMaxChannels ||
      hello.channel > hello.channels) {
    return absl::InvalidArgumentError(
        absl::StrCat("a hello with impossible fields: rank ", hello.from_rank, " to rank ",
                     hello.to_rank, " of ", hello.world_size, ", epoch ", hello.epoch, ", channel ",
                     hello.channel, " of ", hello.channels));
  }
  return hello;
}

std::string EncodeAnswer(TcpAnswer answer, absl::string_view text) {
  text = text.substr(0, kMaxRefusalText);
  answer.text_bytes = static_cast<uint32_t>(text.size());
  std::array<std::byte, kAnswerBytes> bytes = {};
  std::byte* out = PutInteger(bytes.data(), kAnswerMagic);
  out = PutInteger(out, answer.version);
  out = PutInteger(out, static_cast<uint32_t>(answer.verdict));
  out = PutInteger(out, answer.epoch);
  out = PutInteger(out, answer.incarnation.value);
  PutInteger(out, answer.text_bytes);
  return absl::StrCat(absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
                      text);
}

absl::StatusOr<TcpAnswer> DecodeAnswer(absl::Span<const std::byte> bytes) {
  if (bytes.size() != kAnswerBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("an answer has ", kAnswerBytes, " bytes, not ", bytes.size()));
  }
  uint64_t magic = 0;
  uint32_t verdict = 0;
  TcpAnswer answer;
  const std::byte* in = GetInteger(bytes.data(), &magic);
  in = GetInteger(in, &answer.version);
  in = GetInteger(in, &verdict);
  in = GetInteger(in, &answer.epoch);
  in = GetInteger(in, &answer.incarnation.value);
  GetInteger(in, &answer.text_bytes);
  if (magic != kAnswerMagic) return absl::InvalidArgumentError("not an answer to a hello");
  if (verdict > static_cast<uint32_t>(TcpVerdict::kDuplicate) ||
      answer.text_bytes > kMaxRefusalText) {
    return absl::InvalidArgumentError(absl::StrCat("an answer with verdict ", verdict, " and ",
                                                   answer.text_bytes, " bytes of text"));
  }
  answer.verdict = static_cast<TcpVerdict>(verdict);
  return answer;
}

TcpVerdict JudgeHello(const TcpHello& hello, const TcpExpectation& expected, std::string* why) {
  const int world_size = static_cast<int>(expected.incarnations.size());
  if (hello.world_size != world_size || hello.to_rank != expected.rank ||
      hello.channels != expected.channels || hello.from_rank >= world_size ||
      (!expected.both_dial && hello.from_rank < hello.to_rank)) {
    *why = absl::StrCat("expected to be rank ", expected.rank, " of ", world_size, " with ",
                        expected.channels, " channels, but rank ", hello.from_rank,
                        " takes it for rank ", hello.to_rank, " of ", hello.world_size, " with ",
                        hello.channels, " channels in epoch ", hello.epoch);
    return TcpVerdict::kShape;
  }
  if (hello.to != expected.incarnations[expected.rank]) {
    *why = absl::StrCat("incarnation ", hello.to.ToString(), " was dialed, but this is ",
                        expected.incarnations[expected.rank].ToString());
    return TcpVerdict::kIncarnation;
  }
  if (hello.from != expected.incarnations[hello.from_rank]) {
    *why = absl::StrCat("rank ", hello.from_rank, " of epoch ", hello.epoch, " is incarnation ",
                        expected.incarnations[hello.from_rank].ToString(), ", not ",
                        hello.from.ToString());
    return TcpVerdict::kIncarnation;
  }
  return TcpVerdict::kWelcome;
}

}  // namespace muster
