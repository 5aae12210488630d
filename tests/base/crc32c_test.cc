#include "base/crc32c.h"

#include <random>
#include <string>

#include "gtest/gtest.h"

namespace muster {
namespace {

// RFC 3720, appendix B.4, and the check value of the catalogue of CRCs.
TEST(Crc32cTest, MatchesPublishedVectors) {
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62A8AB43u);
  std::string rising;
  for (char c = 0; c < 32; ++c) rising.push_back(c);
  EXPECT_EQ(Crc32c(rising), 0x46DD794Eu);
}

TEST(Crc32cTest, GoesOnFromAPrefix) {
  EXPECT_EQ(Crc32c("6789", Crc32c("12345")), Crc32c("123456789"));
  EXPECT_EQ(Crc32c(""), 0u);
}

TEST(Crc32cTest, EveryLengthAndSplitMatchesOneBitAtATime) {
  std::string text;
  for (uint32_t i = 0; i < 70; ++i) text.push_back(static_cast<char>(i * 2654435761u >> 24));
  for (size_t length = 0; length <= text.size(); ++length) {
    uint32_t expected = ~0u;
    for (size_t i = 0; i < length; ++i) {
      expected ^= static_cast<unsigned char>(text[i]);
      for (int bit = 0; bit < 8; ++bit) {
        expected = (expected >> 1) ^ ((expected & 1) != 0 ? 0x82F63B78u : 0u);
      }
    }
    const absl::string_view whole = absl::string_view(text).substr(0, length);
    for (size_t split = 0; split <= length; ++split) {
      ASSERT_EQ(Crc32c(whole.substr(split), Crc32c(whole.substr(0, split))), ~expected)
          << length << " bytes split at " << split;
      ASSERT_EQ(Crc32cPortable(whole.substr(split), Crc32cPortable(whole.substr(0, split))),
                ~expected);
    }
  }
}

// Long texts are worked on in several runs at a time.
TEST(Crc32cTest, LongTextsMatchThePortableWay) {
  std::mt19937 random(1);
  std::string text(20'000, '\0');
  for (char& c : text) c = static_cast<char>(random());
  for (int round = 0; round < 400; ++round) {
    const size_t begin = random() % 64;
    const size_t length = round < 40 ? 3072 * (round / 8) + round % 8 : random() % 19'000;
    const absl::string_view part = absl::string_view(text).substr(begin, length);
    const auto before = static_cast<uint32_t>(random());
    ASSERT_EQ(Crc32c(part, before), Crc32cPortable(part, before)) << length << " bytes";
  }
}

}  // namespace
}  // namespace muster
