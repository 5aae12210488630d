#include "collectives/transport/tcp_connection.h"

#include <sys/socket.h>

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kStandingTag = 1;
constexpr uint64_t kDataTag = 2;
constexpr uint64_t kStandingToken = 10;
constexpr uint64_t kDataToken = 20;
constexpr int64_t kBudget = 1 << 20;

// Two ends of a connection, of which one sends and the other receives.
class TcpConnectionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    sender_ = std::make_unique<TcpConnection>(UniqueFd(ends[0]), &unused_, &staging_);
    receiver_ = std::make_unique<TcpConnection>(UniqueFd(ends[1]), &receives_, &staging_);
  }

  void Send(uint64_t tag, const std::vector<std::byte>& bytes) {
    sender_->QueueSend(tag, bytes, /*token=*/0);
  }
  void Post(uint64_t tag, std::vector<std::byte>& to, bool standing, uint64_t token) {
    ASSERT_TRUE(
        receives_.Post(PendingReceive::Into(tag, absl::MakeSpan(to), standing, token)).ok());
  }
  // What a Read completes.
  std::vector<uint64_t> Read() {
    std::vector<uint64_t> completed;
    bool more = false;
    EXPECT_TRUE(receiver_->Read(kBudget, &completed, &more).ok());
    EXPECT_FALSE(more);
    return completed;
  }
  void Flush() {
    std::vector<uint64_t> completed;
    EXPECT_TRUE(sender_->Flush(&completed).ok());
    EXPECT_FALSE(sender_->has_sends());
  }

  // Data follows a standing message in one packet; a Read completes that one alone.
  void ReadWordBeforeData() {
    const std::vector<std::byte> word(48, std::byte{1});
    std::vector<std::byte> got_word(word.size());
    Post(kStandingTag, got_word, /*standing=*/true, kStandingToken);
    Send(kStandingTag, word);
    Send(kDataTag, data_);
    Flush();
    EXPECT_THAT(Read(), ElementsAre(kStandingToken));
    EXPECT_EQ(got_word, word);
  }

  const std::vector<std::byte> data_ = std::vector<std::byte>(1000, std::byte{2});
  std::vector<std::byte> got_data_ = std::vector<std::byte>(1000);
  ReceiveTable receives_{TransportLimits()};
  ReceiveTable unused_{TransportLimits()};
  StagingBuffer staging_;
  std::unique_ptr<TcpConnection> sender_;
  std::unique_ptr<TcpConnection> receiver_;
};

TEST_F(TcpConnectionTest, WhatFollowsAStandingMessageWaitsForItsReceive) {
  ReadWordBeforeData();
  EXPECT_TRUE(receiver_->paused());
  EXPECT_EQ(receives_.early_bytes(), 0);
  Post(kDataTag, got_data_, /*standing=*/false, kDataToken);
  EXPECT_THAT(Read(), ElementsAre(kDataToken));
  EXPECT_FALSE(receiver_->paused());
  EXPECT_EQ(got_data_, data_);
}

TEST_F(TcpConnectionTest, WithoutAReceiveItIsTakenInEarlyAfterwards) {
  ReadWordBeforeData();
  EXPECT_THAT(Read(), IsEmpty());
  EXPECT_FALSE(receiver_->paused());
  EXPECT_EQ(receives_.early_bytes(), 1000);
  const auto served = receives_.Post(
      PendingReceive::Into(kDataTag, absl::MakeSpan(got_data_), /*standing=*/false, kDataToken));
  EXPECT_TRUE(served.value());
  EXPECT_EQ(got_data_, data_);
}

TEST_F(TcpConnectionTest, OneReadTakesAllThatIsThereAlthoughTheFirstCallFillsItsBuffer) {
  // The first call looks ahead by 64 KiB, of which the header is a part.
  const std::vector<std::byte> data(64 << 10, std::byte{3});
  std::vector<std::byte> got(data.size());
  Post(kDataTag, got, /*standing=*/false, kDataToken);
  Send(kDataTag, data);
  Flush();
  EXPECT_THAT(Read(), ElementsAre(kDataToken));
  EXPECT_EQ(got, data);
}

}  // namespace
}  // namespace muster
