// The fingerprint of a call, which peers compare and which is described in errors.
#include "absl/types/span.h"
#include "base/check.h"
#include "base/dtype.h"
#include "base/text.h"
#include "collectives/engine/fingerprint.h"
#include "collectives/reduce/reduce_op.h"
#include "collectives/schedule/schedule.h"
#include "tests/fuzz/targets.h"

namespace muster {
namespace {

FuzzOutcome Run(absl::string_view bytes) {
  std::string padded(bytes.substr(0, kFingerprintBytes));
  padded.resize(kFingerprintBytes);
  const Fingerprint fingerprint = DecodeFingerprint(
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(padded.data()), padded.size()));
  const auto encoded = EncodeFingerprint(fingerprint);
  MUSTER_CHECK(DecodeFingerprint(encoded) == fingerprint);
  const std::string text = Describe(fingerprint);
  MUSTER_CHECK(!text.empty() && TextForPeople(text, 1'000) == text) << text;
  return FuzzOutcome::kAccepted;
}

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kBroadcast, Collective::kBarrier}) {
    const auto bytes = EncodeFingerprint({.sequence = 5,
                                          .collective = static_cast<uint8_t>(collective),
                                          .algorithm = static_cast<uint8_t>(Algorithm::kRing),
                                          .dtype = static_cast<uint8_t>(DType::kF32),
                                          .op = static_cast<uint8_t>(ReduceOp::kSum),
                                          .root = 1,
                                          .count = 1'024,
                                          .counts_hash = 99,
                                          .segment_bytes = 262'144});
    seeds.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return seeds;
}

}  // namespace

const FuzzTarget kFingerprintTarget = {.name = "fingerprint",
                                       .run = Run,
                                       .seeds = Seeds,
                                       .max_bytes = kFingerprintBytes,
                                       .refuses = false};

}  // namespace muster
