// Hello and answer of the data plane's handshake.
#include <array>
#include <cstring>

#include "absl/types/span.h"
#include "base/check.h"
#include "base/random.h"
#include "collectives/transport/tcp_handshake.h"
#include "tests/fuzz/targets.h"

namespace muster {
namespace {

using absl::StatusCode;

absl::Span<const std::byte> Bytes(absl::string_view text) {
  return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(text.data()), text.size());
}

FuzzOutcome DecodeOneHello(absl::string_view bytes) {
  const absl::StatusOr<TcpHello> hello = DecodeHello(Bytes(bytes));
  if (!hello.ok()) {
    return Refused(hello.status(), {StatusCode::kInvalidArgument, StatusCode::kFailedPrecondition});
  }
  // Everybody relies on the ranks being in range.
  MUSTER_CHECK(hello->from_rank >= 0 && hello->from_rank < hello->world_size);
  MUSTER_CHECK(hello->to_rank >= 0 && hello->to_rank < hello->world_size);
  MUSTER_CHECK(hello->to_rank != hello->from_rank);
  const auto encoded = EncodeHello(*hello);
  MUSTER_CHECK(DecodeHello(encoded).value() == *hello);
  // Against a mesh of another shape too: ranks of the hello index what is expected.
  const std::array<Incarnation, 3> incarnations = {Incarnation{1}, Incarnation{2}, Incarnation{3}};
  const TcpExpectation expected = {.rank = 1, .channels = 1, .incarnations = incarnations};
  std::string why;
  const TcpVerdict verdict = JudgeHello(*hello, expected, &why);
  MUSTER_CHECK((verdict == TcpVerdict::kWelcome) == why.empty()) << why;
  return FuzzOutcome::kAccepted;
}

FuzzOutcome RunHello(absl::string_view bytes) {
  const FuzzOutcome outcome = DecodeOneHello(bytes);
  if (bytes.size() != kHelloBytes) return outcome;
  // Behind the checksum, which no fuzzer guesses.
  std::string repaired(bytes);
  const uint64_t checksum = StableHash(bytes.substr(0, kHelloBytes - sizeof(uint64_t)));
  std::memcpy(repaired.data() + kHelloBytes - sizeof(checksum), &checksum, sizeof(checksum));
  return DecodeOneHello(repaired);
}

std::vector<std::string> HelloSeeds() {
  std::vector<std::string> seeds;
  for (const TcpHello& hello : {TcpHello{.token_hash = 1,
                               .epoch = 2,
                               .from = Incarnation{3},
                               .to = Incarnation{2},
                               .from_rank = 2,
                               .to_rank = 1,
                               .world_size = 3,
                               .channel = 0,
                               .channels = 1},
                                TcpHello{.token_hash = ~uint64_t{0},
                                .epoch = ~uint64_t{0},
                                .from = Incarnation{9},
                                .to = Incarnation{8},
                                .from_rank = kMaxTcpWorldSize - 1,
                                .to_rank = 0,
                                .world_size = kMaxTcpWorldSize,
                                .channel = kMaxChannels,
                                .channels = kMaxChannels}}) {
    const auto bytes = EncodeHello(hello);
    seeds.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return seeds;
}

FuzzOutcome RunAnswer(absl::string_view bytes) {
  const absl::StatusOr<TcpAnswer> answer =
      DecodeAnswer(Bytes(bytes.substr(0, static_cast<size_t>(kAnswerBytes))));
  if (!answer.ok()) return Refused(answer.status(), {StatusCode::kInvalidArgument});
  MUSTER_CHECK(answer->text_bytes <= kMaxRefusalText);
  const std::string again = EncodeAnswer(*answer, std::string(answer->text_bytes, 'x'));
  MUSTER_CHECK(again.size() == kAnswerBytes + answer->text_bytes);
  const TcpAnswer decoded = DecodeAnswer(Bytes(again).first(kAnswerBytes)).value();
  MUSTER_CHECK(decoded.verdict == answer->verdict && decoded.epoch == answer->epoch &&
               decoded.incarnation == answer->incarnation && decoded.version == answer->version &&
               decoded.text_bytes == answer->text_bytes);
  return FuzzOutcome::kAccepted;
}

std::vector<std::string> AnswerSeeds() {
  return {
      EncodeAnswer({.verdict = TcpVerdict::kWelcome, .epoch = 7}, ""),
      EncodeAnswer({.verdict = TcpVerdict::kStaleEpoch, .epoch = 8, .incarnation = Incarnation{5}},
                   "epoch 7 is over"),
      EncodeAnswer({.verdict = TcpVerdict::kDuplicate}, std::string(1'000, 'x'))};
}

}  // namespace

const FuzzTarget kTcpHelloTarget = {"tcp_hello", RunHello, HelloSeeds, kHelloBytes};
const FuzzTarget kTcpAnswerTarget = {"tcp_answer", RunAnswer, AnswerSeeds,
                                     kAnswerBytes + kMaxRefusalText};

}  // namespace muster
