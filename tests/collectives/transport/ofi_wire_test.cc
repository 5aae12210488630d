// The bytes of a libfabric mesh, and how early messages find their receives.
#include "base/random.h"
#include "collectives/transport/ofi/ofi_card.h"
#include "collectives/transport/ofi/ofi_inbox.h"
#include "collectives/transport/ofi/ofi_packet.h"

namespace muster {
namespace {

TEST(OfiPacketTest, EverythingSurvivesTheWire) {
  OfiPacketHeader header;
  header.kind = OfiPacketKind::kEager;
  header.rank = 4095;
  header.cookie = 0xdeadbeef;
  header.sequence = 0xffffffff;
  header.returned = 7;
  header.consumed = uint64_t{1} << 40;
  header.argument = ~uint64_t{0};
  std::byte bytes[kOfiHeaderBytes];
  EncodeOfiHeader(header, bytes);
  EXPECT_EQ(*DecodeOfiHeader(bytes), header);
  const OfiRecord records[] = {OfiRequest{~uint64_t{0}, kMaxMessageBytes},
                               OfiGrant{77, kMaxMessageBytes, kOfiSlots - 1, 3,
                                        kMaxMessageBytes - 4096, 4096, ~uint64_t{1}, 99},
                               OfiDone{uint64_t{1} << 63},
                               OfiWritten{OfiImmediate(kOfiSlots - 1, true)}, OfiDone{0}};
  std::vector<std::byte> payload(5 * kOfiMaxRecordBytes);
  std::byte* end = payload.data();
  for (const OfiRecord& record : records) {
    EXPECT_LE(OfiRecordBytes(record), kOfiMaxRecordBytes);
    end = EncodeOfiRecord(record, end);
  }
  auto left =
      absl::Span<const std::byte>(payload.data(), static_cast<size_t>(end - payload.data()));
  for (const OfiRecord& record : records) EXPECT_EQ(*TakeOfiRecord(&left), record);
  EXPECT_TRUE(left.empty());
}

TEST(OfiPacketTest, AnImmediateCarriesSlotAndRequest) {
  for (const uint32_t slot : {uint32_t{0}, uint32_t{4097}, kOfiSlots - 1}) {
    for (const bool requested : {false, true}) {
      EXPECT_EQ(SlotOfImmediate(OfiImmediate(slot, requested)), slot);
      EXPECT_EQ(IsOfRequested(OfiImmediate(slot, requested)), requested);
    }
  }
}

TEST(OfiPacketTest, WhatIsNoneIsRefused) {
  std::byte bytes[kOfiHeaderBytes] = {};
  EXPECT_FALSE(DecodeOfiHeader(bytes).ok());  // kind 0
  bytes[0] = std::byte{3};
  EXPECT_FALSE(DecodeOfiHeader(bytes).ok());
  bytes[0] = std::byte{2};
  EXPECT_TRUE(DecodeOfiHeader(bytes).ok());
  EXPECT_FALSE(DecodeOfiHeader(absl::MakeConstSpan(bytes, kOfiHeaderBytes - 1)).ok());
  const OfiRecord bad[] = {OfiRequest{1, kMaxMessageBytes + 1},
                           OfiRequest{1, -1},
                           OfiGrant{1, 100, kOfiSlots, 0, 0, 100, 0, 0},
                           OfiGrant{1, 100, 5, 0, 0, 0, 0, 0},
                           OfiGrant{1, 100, 5, 0, 1, 100, 0, 0},
                           OfiGrant{1, 100, 5, 0, -1, 50, 0, 0},
                           OfiGrant{1, kMaxMessageBytes + 1, 5, 0, 0, 50, 0, 0}};
  for (const OfiRecord& record : bad) {
    std::byte payload[kOfiMaxRecordBytes];
    EncodeOfiRecord(record, payload);
    absl::Span<const std::byte> span(payload, OfiRecordBytes(record));
    EXPECT_FALSE(TakeOfiRecord(&span).ok()) << record.index();
  }
  for (uint32_t kind = 0; kind < 6; ++kind) {
    std::byte payload[kOfiMaxRecordBytes] = {static_cast<std::byte>(kind)};
    absl::Span<const std::byte> span(payload, 7);
    EXPECT_FALSE(TakeOfiRecord(&span).ok()) << kind;
  }
  absl::Span<const std::byte> unknown(bytes, 32);
  bytes[0] = std::byte{4};
  EXPECT_FALSE(TakeOfiRecord(&unknown).ok());
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

OfiArrival Request(int64_t length) {
  OfiArrival arrival;
  arrival.length = length;
  return arrival;
}

TEST(OfiInboxTest, MessagesOfOneTagAreServedInTheirOrder) {
  OfiInbox inbox(TransportLimits{});
  EXPECT_FALSE(inbox.Take(5).has_value());
  ASSERT_TRUE(inbox.Keep(5, Request(1)).ok());
  ASSERT_TRUE(inbox.Keep(6, Request(2)).ok());
  ASSERT_TRUE(inbox.Keep(5, Request(3)).ok());
  EXPECT_EQ(inbox.Post(Receive(5))->length, 1);
  EXPECT_EQ(inbox.Post(Receive(5))->length, 3);
  EXPECT_FALSE(inbox.Post(Receive(5)).has_value());
  EXPECT_TRUE(inbox.Take(5).has_value());
  EXPECT_EQ(inbox.Post(Receive(6))->length, 2);
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
