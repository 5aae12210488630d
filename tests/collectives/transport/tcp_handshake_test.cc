#include "collectives/transport/tcp_handshake.h"

#include "base/random.h"
#include "collectives/transport/tcp_frame.h"
#include "collectives/transport/transport.h"

namespace muster {
namespace {

TcpHello AHello() {
  TcpHello hello;
  hello.token_hash = 0x1234;
  hello.epoch = 9;
  hello.from = Incarnation{11};
  hello.to = Incarnation{22};
  hello.from_rank = 3;
  hello.to_rank = 1;
  hello.world_size = 4;
  hello.channel = 1;
  hello.channels = 2;
  return hello;
}

TEST(TcpHandshake, HelloAndAnswerSurviveEncoding) {
  const auto bytes = EncodeHello(AHello());
  const auto decoded = DecodeHello(bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, AHello());

  TcpAnswer answer;
  answer.verdict = TcpVerdict::kStaleEpoch;
  answer.epoch = 12;
  answer.incarnation = Incarnation{5};
  const std::string text = EncodeAnswer(answer, std::string(2000, 'x'));
  EXPECT_EQ(text.size(), static_cast<size_t>(kAnswerBytes + kMaxRefusalText));
  const auto back = DecodeAnswer(
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(text.data()), kAnswerBytes));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->verdict, answer.verdict);
  EXPECT_EQ(back->epoch, 12u);
  EXPECT_EQ(back->text_bytes, static_cast<uint32_t>(kMaxRefusalText));
}

TEST(TcpHandshake, EveryTruncationAndEveryFlippedBitIsRefused) {
  const auto bytes = EncodeHello(AHello());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(DecodeHello(absl::MakeConstSpan(bytes).first(size)).ok());
  }
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    auto damaged = bytes;
    damaged[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_FALSE(DecodeHello(damaged).ok()) << "bit " << bit;
  }
}

TEST(TcpHandshake, RandomBytesAreNeitherHellosNorAnswersNorFrames) {
  const RandomStream random(1, "fuzz");
  for (uint64_t round = 0; round < 2000; ++round) {
    std::array<std::byte, kHelloBytes> bytes;
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(random.Bits(round * 100 + i));
    }
    EXPECT_FALSE(DecodeHello(bytes).ok());
    EXPECT_FALSE(DecodeAnswer(absl::MakeConstSpan(bytes).first(kAnswerBytes)).ok());
    EXPECT_FALSE(DecodeDataHeader(absl::MakeConstSpan(bytes).first(kDataHeaderBytes)).ok());
    std::string control(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    EXPECT_FALSE(TakeControlFrame(&control).ok());
  }
}

TEST(TcpHandshake, AnotherVersionIsToldApartFromGarbage) {
  auto bytes = EncodeHello(AHello());
  bytes[8] = std::byte{99};
  EXPECT_TRUE(absl::IsFailedPrecondition(DecodeHello(bytes).status()));
}

TEST(TcpHandshake, ImpossibleFieldsAreRefused) {
  const auto refused = [](auto change) {
    TcpHello hello = AHello();
    change(hello);
    return !DecodeHello(EncodeHello(hello)).ok();
  };
  EXPECT_TRUE(refused([](TcpHello& h) { h.to_rank = 4; }));
  EXPECT_TRUE(refused([](TcpHello& h) { h.to_rank = h.from_rank; }));
  EXPECT_TRUE(refused([](TcpHello& h) { h.to_rank = -1; }));
  EXPECT_TRUE(refused([](TcpHello& h) { h.from_rank = 4; }));
  EXPECT_TRUE(refused([](TcpHello& h) { h.world_size = kMaxTcpWorldSize + 1; }));
  EXPECT_TRUE(refused([](TcpHello& h) { h.epoch = 0; }));
  EXPECT_TRUE(refused([](TcpHello& h) { h.channel = 3; }));
  EXPECT_TRUE(refused([](TcpHello& h) { h.channels = kMaxChannels + 1; }));
}

TEST(TcpHandshake, JudgeNamesWhatDiffers) {
  const std::vector<Incarnation> incarnations = {{1}, {22}, {3}, {11}};
  const TcpExpectation expected = {0x1234, 9, 1, 2, incarnations};
  std::string why;
  EXPECT_EQ(JudgeHello(AHello(), expected, &why), TcpVerdict::kWelcome);
  TcpHello hello = AHello();
  hello.from = Incarnation{12};
  EXPECT_EQ(JudgeHello(hello, expected, &why), TcpVerdict::kIncarnation);
  EXPECT_THAT(why, testing::HasSubstr("rank 3"));
  hello = AHello();
  hello.to = Incarnation{23};
  EXPECT_EQ(JudgeHello(hello, expected, &why), TcpVerdict::kIncarnation);
  hello = AHello();
  hello.world_size = 5;
  EXPECT_EQ(JudgeHello(hello, expected, &why), TcpVerdict::kShape);
  EXPECT_THAT(why, testing::HasSubstr("of 5"));
}

TEST(TcpFrame, SurvivesEncodingAndChecksLengths) {
  const TcpDataHeader header = {0xdeadbeef12345678, 1 << 20};
  const auto decoded = DecodeDataHeader(EncodeDataHeader(header));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(*decoded, header);
  EXPECT_FALSE(DecodeDataHeader(EncodeDataHeader({1, kMaxMessageBytes + 1})).ok());
  EXPECT_FALSE(DecodeDataHeader(EncodeDataHeader({1, -1})).ok());
}

TEST(TcpFrame, ControlFramesComeOffByteByByte) {
  TcpControlFrame frame;
  frame.kind = TcpControlFrame::Kind::kAbort;
  frame.code = absl::StatusCode::kUnavailable;
  frame.culprit = 7;
  frame.text = "rank 7 is gone";
  const std::string wire = EncodeControlFrame(frame) + EncodeControlFrame({});
  std::string buffer;
  std::vector<TcpControlFrame> got;
  for (char byte : wire) {
    buffer.push_back(byte);
    const auto taken = TakeControlFrame(&buffer);
    ASSERT_TRUE(taken.ok());
    if (taken->has_value()) got.push_back(**taken);
  }
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0].text, frame.text);
  EXPECT_EQ(got[0].code, frame.code);
  EXPECT_EQ(got[0].culprit, frame.culprit);
  EXPECT_EQ(got[1].kind, TcpControlFrame::Kind::kGoodbye);
  EXPECT_FALSE(got[1].culprit.has_value());
}

}  // namespace
}  // namespace muster
