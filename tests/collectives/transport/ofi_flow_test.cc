// Which packets and writes the two halves of a libfabric mesh ask for, in orders of arrival that
// networks without any order allow and the providers at hand never show.
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "collectives/transport/ofi/ofi_packet_buffers.h"
#include "collectives/transport/ofi/ofi_receiver.h"
#include "collectives/transport/ofi/ofi_sender.h"
#include "collectives/transport/ofi/ofi_transport.h"
#include "tests/wait_until.h"

namespace muster {
namespace {

constexpr Rank kSelf = 0;
constexpr Rank kPeer = 1;
constexpr int64_t kLongestEarly = 1000;
constexpr int kPackets = 32;
constexpr size_t kPacketBytes = 4096;

class NoConsumer : public PieceConsumer {
 public:
  void Consume(uint64_t /*token*/, int64_t /*offset*/,
               absl::Span<const std::byte> /*piece*/) override {}
};

// Rank 0's halves, and an endpoint in the place of rank 1 that only looks at what it is sent.
class OfiFlowTest : public testing::Test {
 protected:
  void SetUp() override {
    auto choice = ChooseOfiProvider(OfiOptions(), "127.0.0.1");
    ASSERT_TRUE(choice.ok()) << choice.status();
    const OfiRail::Sizes sizes = {.receives = kPackets, .immediates = 0, .peers = 1};
    for (int i = 0; i < 2; ++i) {
      auto rail = OfiRail::Open(choice->rails[0].get(), sizes);
      ASSERT_TRUE(rail.ok()) << rail.status();
      (i == 0 ? rails_ : tap_rails_).push_back(*std::move(rail));
    }
    buffers_ = std::make_unique<OfiPacketBuffers>(rails_[0].get(), kPacketBytes, 0, kPackets);
    tap_ = std::make_unique<OfiPacketBuffers>(tap_rails_[0].get(), kPacketBytes, kPackets, 0);
    ASSERT_EQ(*tap_->PostAll(), kPackets);
    OfiPeerLimits limits;
    limits.window = kPackets;
    limits.packet_bytes = kPacketBytes;
    limits.early_bytes = kLongestEarly;
    limits.budget = 1 << 20;
    const fi_addr_t address = *rails_[0]->Insert(tap_rails_[0]->address());
    links_.resize(2);
    links_[kPeer] =
        std::make_unique<OfiPeerLink>(kSelf, kPeer, address, limits, kPackets, /*overhead=*/64);
    targets_.resize(2);
    targets_[kPeer] = {{address}, /*with_immediates=*/true};
    receiver_ =
        std::make_unique<OfiReceiver>(rails_, regions_, links_, TransportLimits(), kLongestEarly);
    ASSERT_TRUE(receiver_->Init().ok());
    sender_ = std::make_unique<OfiSender>(rails_, regions_, links_, targets_, TransportLimits());
  }
  void TearDown() override {
    receiver_->Clear();
    sender_->Clear();
    for (OfiRails* rails : {&rails_, &tap_rails_}) (*rails)[0]->CloseEndpoint(false);
  }

  // Grants what may be granted and returns all records that go to the peer.
  std::vector<OfiRecord> Records() {
    Rank culprit = -1;
    bool moved = false;
    EXPECT_TRUE(receiver_->Grant(&culprit, &moved).ok());
    std::vector<OfiRecord> records;
    std::vector<OfiCompletion> batch;
    const absl::Time limit = absl::Now() + kTestPatience;
    while ((links_[kPeer]->has_queued() || taken_ < links_[kPeer]->sent()) && absl::Now() < limit) {
      EXPECT_TRUE(links_[kPeer]->Flush(*rails_[0], *buffers_, &completed_, &moved).ok());
      batch.clear();
      EXPECT_TRUE(rails_[0]->Read(&batch).ok());
      batch.clear();
      EXPECT_TRUE(tap_rails_[0]->Read(&batch).ok());
      for (const OfiCompletion& completion : batch) Take(completion, &records);
    }
    EXPECT_EQ(taken_, links_[kPeer]->sent());
    return records;
  }
  template <typename Record>
  std::vector<Record> RecordsOf() {
    std::vector<Record> chosen;
    for (const OfiRecord& record : Records()) {
      if (const auto* one = std::get_if<Record>(&record)) chosen.push_back(*one);
    }
    return chosen;
  }
  absl::Status Receive(uint64_t tag, absl::Span<std::byte> destination) {
    return receiver_->Post(kPeer, PendingReceive::Into(tag, destination, /*standing=*/false, tag),
                           &completed_);
  }
  absl::Status Consume(uint64_t tag, int64_t length) {
    return receiver_->Post(kPeer, PendingReceive::Through(tag, length, 8, &consumer_, tag),
                           &completed_);
  }
  absl::Status Piece(uint32_t slot, bool requested) {
    return receiver_->OnPiece(OfiImmediate(slot, requested), /*driving=*/true, &completed_);
  }

  OfiRails rails_, tap_rails_;
  OfiRegions regions_{rails_};
  std::unique_ptr<OfiPacketBuffers> buffers_, tap_;
  std::vector<std::unique_ptr<OfiPeerLink>> links_;
  std::vector<OfiWriteTarget> targets_;
  std::unique_ptr<OfiReceiver> receiver_;
  std::unique_ptr<OfiSender> sender_;
  NoConsumer consumer_;
  std::vector<uint64_t> completed_;

 private:
  void Take(const OfiCompletion& completion, std::vector<OfiRecord>* records) {
    ASSERT_TRUE(completion.status.ok()) << completion.status;
    ++taken_;
    absl::Span<const std::byte> payload =
        tap_->Received(completion.operation->index, completion.length).subspan(kOfiHeaderBytes);
    while (!payload.empty()) {
      const auto record = TakeOfiRecord(&payload);
      ASSERT_TRUE(record.ok()) << record.status();
      records->push_back(*record);
    }
  }
  uint32_t taken_ = 0;  // packets
};

TEST_F(OfiFlowTest, ALongReceiveIsGrantedBeforeThePeerAsksAndAShortOneIsNot) {
  std::vector<std::byte> memory(5000), small(kLongestEarly);
  ASSERT_TRUE(Receive(1, absl::MakeSpan(memory)).ok());
  ASSERT_TRUE(Receive(2, absl::MakeSpan(small)).ok());
  const auto grants = RecordsOf<OfiGrant>();
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].tag, 1u);
  EXPECT_EQ(grants[0].message_length, 5000);
  EXPECT_EQ(grants[0].length, 5000);
  ASSERT_TRUE(Piece(grants[0].slot, /*requested=*/false).ok());
  EXPECT_EQ(completed_, (std::vector<uint64_t>{1}));
  EXPECT_EQ(RecordsOf<OfiDone>(), (std::vector<OfiDone>{{1}}));
}

TEST_F(OfiFlowTest, AWriteMayOvertakeTheRequestBeforeIt) {
  std::vector<std::byte> memory(5000);
  for (uint64_t round = 0; round < 3; ++round) {  // The tag is used again at once.
    completed_.clear();
    ASSERT_TRUE(Receive(1, absl::MakeSpan(memory)).ok());
    const auto grants = RecordsOf<OfiGrant>();
    ASSERT_EQ(grants.size(), 1u);
    ASSERT_TRUE(Piece(grants[0].slot, /*requested=*/true).ok());
    EXPECT_TRUE(completed_.empty());  // Else the request would pass for that of the next message.
    EXPECT_TRUE(RecordsOf<OfiDone>().empty());
    ASSERT_TRUE(receiver_->OnRequest(kPeer, {1, 5000}, &completed_).ok());
    EXPECT_EQ(completed_, (std::vector<uint64_t>{1}));
    EXPECT_EQ(RecordsOf<OfiDone>().size(), 1u);
  }
}

TEST_F(OfiFlowTest, RequestsOfOneTagInARowAreRefused) {
  std::vector<std::byte> memory(5000);
  ASSERT_TRUE(Receive(1, absl::MakeSpan(memory)).ok());
  ASSERT_TRUE(receiver_->OnRequest(kPeer, {1, 5000}, &completed_).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(receiver_->OnRequest(kPeer, {1, 5000}, &completed_)));
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(receiver_->OnRequest(kPeer, {2, 5000}, &completed_).ok());
  }
  ASSERT_TRUE(Receive(2, absl::MakeSpan(memory)).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(Receive(2, absl::MakeSpan(memory))));
}

TEST_F(OfiFlowTest, GrantsAheadLeaveRoomForThoseWhoAsk) {
  constexpr auto kLength = static_cast<int64_t>(2 * OfiReceiver::kStagingBytes);
  for (uint64_t tag = 0; tag < 20; ++tag) ASSERT_TRUE(Consume(tag, kLength).ok());
  const auto ahead = RecordsOf<OfiGrant>();
  EXPECT_EQ(ahead.size(), static_cast<size_t>(OfiReceiver::kMostStagingAhead));
  EXPECT_EQ(ahead.front().tag, 0u);
  EXPECT_TRUE(RecordsOf<OfiGrant>().empty());
  // The last of them is what the peer sends first.
  ASSERT_TRUE(receiver_->OnRequest(kPeer, {19, kLength}, &completed_).ok());
  const auto asked = RecordsOf<OfiGrant>();
  ASSERT_EQ(asked.size(), 2u);
  for (const OfiGrant& grant : asked) {
    EXPECT_EQ(grant.tag, 19u);
    ASSERT_TRUE(Piece(grant.slot, /*requested=*/true).ok());
  }
  EXPECT_EQ(completed_, (std::vector<uint64_t>{19}));
  // A piece of one granted ahead makes room for the next.
  ASSERT_TRUE(Piece(ahead[0].slot, /*requested=*/false).ok());
  const auto more = RecordsOf<OfiGrant>();
  ASSERT_FALSE(more.empty());
  EXPECT_EQ(more.front().tag, static_cast<uint64_t>(OfiReceiver::kMostStagingAhead) / 2);
}

TEST_F(OfiFlowTest, AMessageThatFindsItsGrantIsNotAnnounced) {
  const std::vector<std::byte> bytes(5000);
  OfiGrant grant = {.tag = 1, .message_length = 5000, .slot = 3, .length = 2000};
  ASSERT_TRUE(sender_->OnGrant(kPeer, grant).ok());
  sender_->Post(kPeer, 1, bytes, 10);
  sender_->Post(kPeer, 2, bytes, 11);
  EXPECT_EQ(RecordsOf<OfiRequest>(), (std::vector<OfiRequest>{{2, 5000}}));
  EXPECT_EQ(sender_->pending(kPeer), 2);
  EXPECT_FALSE(sender_->OnDone(kPeer, 1, &completed_).ok());  // Not all of it was granted.
  grant.offset = 2000;
  grant.length = 3001;
  grant.message_length = 5001;
  EXPECT_FALSE(sender_->OnGrant(kPeer, grant).ok());
}

TEST_F(OfiFlowTest, AGrantForAnotherLengthIsAnsweredByARequest) {
  const std::vector<std::byte> bytes(5000);
  const OfiGrant grant = {.tag = 1, .message_length = 6000, .length = 6000};
  ASSERT_TRUE(sender_->OnGrant(kPeer, grant).ok());
  sender_->Post(kPeer, 1, bytes, 10);
  EXPECT_EQ(RecordsOf<OfiRequest>(), (std::vector<OfiRequest>{{1, 5000}}));
  ASSERT_TRUE(sender_->OnGrant(kPeer, grant).ok());  // Was on its way.
  // What the receiver says to the request.
  std::vector<std::byte> memory(6000);
  ASSERT_TRUE(Receive(7, absl::MakeSpan(memory)).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(receiver_->OnRequest(kPeer, {7, 5000}, &completed_)));
  EXPECT_TRUE(absl::IsInvalidArgument(
      receiver_->OnEager(kPeer, 7, absl::MakeConstSpan(bytes).first(100), true, &completed_)));
}

TEST_F(OfiFlowTest, APeerThatGrantsWithoutEndIsRefused) {
  absl::Status status;
  uint64_t tag = 0;
  for (; status.ok() && tag < 10000; ++tag) {
    status = sender_->OnGrant(kPeer, {.tag = tag, .message_length = 5000, .length = 5000});
  }
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(tag, static_cast<uint64_t>(OfiReceiver::kSlots) + 1);
}

}  // namespace
}  // namespace muster
