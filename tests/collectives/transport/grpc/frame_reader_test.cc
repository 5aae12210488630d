// Messages come out whole and in order however the stream is cut, and nothing is taken that has no
// place.
#include "collectives/transport/grpc/frame_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace muster {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Bytes = std::vector<std::byte>;

void Append(Bytes* stream, uint64_t tag, const Bytes& message) {
  const auto header = EncodeDataHeader({tag, static_cast<int64_t>(message.size())});
  stream->insert(stream->end(), header.begin(), header.end());
  stream->insert(stream->end(), message.begin(), message.end());
}

Bytes Message(size_t size) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  return bytes;
}

class Collector : public PieceConsumer {
 public:
  void Consume(uint64_t, int64_t offset, absl::Span<const std::byte> piece) override {
    EXPECT_EQ(offset, static_cast<int64_t>(bytes.size()));
    EXPECT_EQ(piece.size() % 8, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(piece.data()) % 8, 0u);
    bytes.insert(bytes.end(), piece.begin(), piece.end());
  }
  Bytes bytes;
};

class FrameReaderTest : public testing::Test {
 protected:
  TransportLimits limits_ = {.eager_bytes = 100, .unexpected_bytes = 150};
  ReceiveTable table_{limits_};
  StagingBuffer staging_;
  FrameReader reader_{&table_, &staging_};
  std::vector<uint64_t> completed_;
};

TEST_F(FrameReaderTest, AnyCutGivesTheSameMessages) {
  const Bytes first = Message(1000), second = Message(200'008);
  Bytes stream;
  Append(&stream, 1, first);
  Append(&stream, 2, {});
  Append(&stream, 3, second);
  for (size_t cut : {1, 3, 24, 25, 4099, 1 << 20}) {
    Bytes got(first.size());
    Collector collector;
    (void)table_.Post(PendingReceive::Into(1, absl::MakeSpan(got), false, 11));
    (void)table_.Post(PendingReceive::Into(2, {}, false, 12));
    (void)table_.Post(PendingReceive::Through(3, 200'008, 8, &collector, 13));
    completed_.clear();
    for (size_t at = 0; at < stream.size(); at += cut) {
      const auto piece = absl::MakeConstSpan(stream).subspan(at, cut);
      ASSERT_EQ(reader_.Take(piece, &completed_).value(), piece.size());
    }
    EXPECT_THAT(completed_, ElementsAre(11, 12, 13));
    EXPECT_EQ(got, first);
    EXPECT_EQ(collector.bytes, second);
    EXPECT_FALSE(reader_.mid_message());
    EXPECT_EQ(table_.due(), 0);
  }
}

TEST_F(FrameReaderTest, ALargeMessageWaitsForItsReceiveAndASmallOneDoesNot) {
  Bytes stream;
  Append(&stream, 1, Message(50));
  const size_t small = stream.size();
  Append(&stream, 2, Message(101));
  EXPECT_EQ(reader_.Take(stream, &completed_).value(), small + kDataHeaderBytes);
  const auto rest = absl::MakeConstSpan(stream).subspan(small + kDataHeaderBytes);
  EXPECT_EQ(reader_.Take(rest, &completed_).value(), 0u);
  EXPECT_THAT(completed_, IsEmpty());
  Bytes got(101);
  ASSERT_FALSE(table_.Post(PendingReceive::Into(2, absl::MakeSpan(got), false, 22)).value());
  EXPECT_EQ(reader_.Take(rest, &completed_).value(), rest.size());
  EXPECT_THAT(completed_, ElementsAre(22));
  EXPECT_EQ(got, Message(101));
  Bytes early(50);
  EXPECT_TRUE(table_.Post(PendingReceive::Into(1, absl::MakeSpan(early), false, 21)).value());
  EXPECT_EQ(early, Message(50));
}

TEST_F(FrameReaderTest, GarbageAndAnotherLengthAreErrors) {
  EXPECT_TRUE(absl::IsInvalidArgument(reader_.Take(Message(100), &completed_).status()));
  FrameReader fresh(&table_, &staging_);
  Bytes stream, got(9);
  Append(&stream, 4, Message(8));
  (void)table_.Post(PendingReceive::Into(4, absl::MakeSpan(got), false, 1));
  EXPECT_TRUE(absl::IsInvalidArgument(fresh.Take(stream, &completed_).status()));
}

}  // namespace
}  // namespace muster
