#include "collectives/engine/fingerprint.h"

namespace muster {
namespace {

TEST(Fingerprint, SurvivesEncoding) {
  Fingerprint fingerprint;
  fingerprint.sequence = 77;
  fingerprint.collective = 1;
  fingerprint.algorithm = 2;
  fingerprint.dtype = 3;
  fingerprint.op = 4;
  fingerprint.root = 5;
  fingerprint.count = int64_t{1} << 40;
  fingerprint.counts_hash = 0xabcdef;
  fingerprint.segment_bytes = 4096;
  EXPECT_EQ(DecodeFingerprint(EncodeFingerprint(fingerprint)), fingerprint);
}

TEST(Fingerprint, DescribesWhatNoRankOfThisVersionCouldCall) {
  std::array<std::byte, kFingerprintBytes> bytes;
  for (int value = 0; value < 256; ++value) {
    bytes.fill(static_cast<std::byte>(value));
    EXPECT_FALSE(Describe(DecodeFingerprint(bytes)).empty());
  }
}

}  // namespace
}  // namespace muster
