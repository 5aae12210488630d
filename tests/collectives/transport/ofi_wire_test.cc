// The bytes of a libfabric mesh, and how early messages find their receives.
#include "base/random.h"
#include "collectives/transport/ofi/ofi_card.h"
#include "collectives/transport/ofi/ofi_inbox.h"
#include "collectives/transport/ofi/ofi_packet.h"

namespace muster {
namespace {

TEST(OfiPacketTest, EverythingSurvivesTheWire) {
  OfiPacketHeader header;
  header.kind = OfiPacketKind::kGrant;
  header.rank = 4095;
  header.cookie = 0xdeadbeef;
  header.sequence = 0xffffffff;
  header.returned = 7;
  header.consumed = uint64_t{1} << 40;
  header.argument = ~uint64_t{0};
  std::byte bytes[kOfiHeaderBytes];
  EncodeOfiHeader(header, bytes);
  EXPECT_EQ(*DecodeOfiHeader(bytes), header);
  const OfiRequest request = {kMaxMessageBytes, 0xfffffff0};
  std::byte request_bytes[kOfiRequestBytes];
  EncodeOfiRequest(request, request_bytes);
  EXPECT_EQ(*DecodeOfiRequest(request_bytes), request);
  const OfiGrant grant = {5, 3, int64_t{1} << 29, 4096, ~uint64_t{1}, 99};
  std::byte grant_bytes[kOfiGrantBytes];
  EncodeOfiGrant(grant, grant_bytes);
  EXPECT_EQ(*DecodeOfiGrant(grant_bytes), grant);
}

TEST(OfiPacketTest, WhatIsNoneIsRefused) {
  std::byte bytes[kOfiHeaderBytes] = {};
  EXPECT_FALSE(DecodeOfiHeader(bytes).ok());  // kind 0
  bytes[0] = std::byte{7};
  EXPECT_FALSE(DecodeOfiHeader(bytes).ok());
  bytes[0] = std::byte{6};
  EXPECT_TRUE(DecodeOfiHeader(bytes).ok());
  EXPECT_FALSE(DecodeOfiHeader(absl::MakeConstSpan(bytes, kOfiHeaderBytes - 1)).ok());
  std::byte request[kOfiRequestBytes];
  EncodeOfiRequest({kMaxMessageBytes + 1, 1}, request);
  EXPECT_FALSE(DecodeOfiRequest(request).ok());
  EncodeOfiRequest({-1, 1}, request);
  EXPECT_FALSE(DecodeOfiRequest(request).ok());
  EXPECT_FALSE(DecodeOfiGrant(request).ok());
}

OfiCard SomeCard() {
  OfiCard card;
  card.epoch = 12;
  card.rank = 3;
  card.incarnation = Incarnation{77};
  card.cookie = 5;
  card.window = 32;
  card.packet_bytes = 8192;
  card.early_bytes = 1 << 16;
  card.budget = 1 << 20;
  card.overhead = 256;
  card.takes_immediates = true;
  card.provider = "tcp;ofi_rxm";
  card.addresses = {std::string("\0\1opaque\xff", 9), "", std::string(300, 'x')};
  return card;
}

TEST(OfiCardTest, SurvivesTheWire) {
  const OfiCard card = SomeCard();
  EXPECT_EQ(*DecodeOfiCard(EncodeOfiCard(card)), card);
}

TEST(OfiCardTest, DamageOfAnyKindIsNoticed) {
  const std::string good = EncodeOfiCard(SomeCard());
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(DecodeOfiCard(absl::string_view(good).substr(0, length)).ok()) << length;
  }
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x40);
    EXPECT_FALSE(DecodeOfiCard(bad).ok()) << at;
  }
  EXPECT_FALSE(DecodeOfiCard(good + "x").ok());
}

PendingReceive Receive(uint64_t tag, bool standing = false) {
  PendingReceive receive;
  receive.tag = tag;
  receive.standing = standing;
  return receive;
}

OfiArrival Request(uint32_t send_id) {
  OfiArrival arrival;
  arrival.send_id = send_id;
  return arrival;
}

TEST(OfiInboxTest, MessagesOfOneTagAreServedInTheirOrder) {
  OfiInbox inbox(TransportLimits{});
  EXPECT_FALSE(inbox.Take(5).has_value());
  ASSERT_TRUE(inbox.Keep(5, Request(1)).ok());
  ASSERT_TRUE(inbox.Keep(6, Request(2)).ok());
  ASSERT_TRUE(inbox.Keep(5, Request(3)).ok());
  EXPECT_EQ(inbox.Post(Receive(5))->send_id, 1u);
  EXPECT_EQ(inbox.Post(Receive(5))->send_id, 3u);
  EXPECT_FALSE(inbox.Post(Receive(5)).has_value());
  EXPECT_TRUE(inbox.Take(5).has_value());
  EXPECT_EQ(inbox.Post(Receive(6))->send_id, 2u);
}

TEST(OfiInboxTest, StandingReceivesAreDueOnlyAsExpected) {
  OfiInbox inbox(TransportLimits{});
  inbox.Post(Receive(1));
  inbox.Post(Receive(2, /*standing=*/true));
  EXPECT_EQ(inbox.due(), 1);
  inbox.Expect(1);
  EXPECT_EQ(inbox.due(), 2);
  inbox.Finished(*inbox.Take(2));
  inbox.Expect(-1);
  inbox.Finished(*inbox.Take(1));
  EXPECT_EQ(inbox.due(), 0);
}

TEST(OfiInboxTest, APeerThatIgnoresItsLimitsIsRefused) {
  TransportLimits limits;
  limits.max_pending_per_peer = 4;
  OfiInbox inbox(limits);
  for (uint32_t i = 0; i < 8; ++i) ASSERT_TRUE(inbox.Keep(i, Request(i)).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(inbox.Keep(9, Request(9))));
}

}  // namespace
}  // namespace muster
