#include "collectives/transport/shm/shm_sender.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "collectives/transport/wire.h"

namespace muster {
namespace {

// Up to here a copy costs less than it takes to look where the memory lies and to wait for its
// reader.
constexpr size_t kCopyBytes = 4 << 10;
// Up to here it costs less than to have the kernel read the memory of another process.
constexpr size_t kCopyUnregisteredBytes = 16 << 10;
// Pieces of one message under way at a time: one is written while another is read.
constexpr uint32_t kPiecesUnderWay = 3;

absl::Status Nonsense(absl::string_view what, uint64_t number) {
  return absl::InvalidArgumentError(
      absl::StrCat("it spoke of ", what, " ", number, ", which it has nothing of"));
}

}  // namespace

ShmSender::ShmSender(ShmGroup& group, const std::vector<std::unique_ptr<ShmLink>>& links,
                     std::vector<bool> can_read, const TransportLimits& limits)
    : group_(group),
      links_(links),
      can_read_(std::move(can_read)),
      limits_(limits),
      blocks_(group.blocks()),
      block_use_(ShmBlocks::kSmall + ShmBlocks::kLarge),
      peers_(static_cast<size_t>(group.size())) {}

bool ShmSender::MayTakeInEarly(Rank rank, int64_t bytes) {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  const auto unserved = static_cast<int64_t>(peer.counted - links_[rank]->served());
  constexpr auto kEach = static_cast<int64_t>(ShmEntry::kPayloadBytes);
  return bytes <= std::min(limits_.eager_bytes, ShmBlocks::kLargeBytes) &&
         unserved < limits_.max_pending_per_peer &&
         unserved * kEach + peer.unexpected + bytes <= limits_.unexpected_bytes;
}

uint32_t ShmSender::NewMessage(Rank peer, absl::Span<const std::byte> bytes, uint64_t token) {
  int& pending = peers_[static_cast<size_t>(peer)].pending;
  ++pending;
  MUSTER_CHECK_LE(pending, limits_.max_pending_per_peer);
  if (free_messages_.empty()) {
    free_messages_.push_back(static_cast<uint32_t>(messages_.size()));
    messages_.emplace_back();
  }
  const uint32_t id = free_messages_.back();
  free_messages_.pop_back();
  messages_[id] = {.peer = peer, .token = token, .bytes = bytes};
  return id;
}

void ShmSender::Finish(uint32_t id, std::vector<uint64_t>* completed) {
  Message& message = messages_[id];
  completed->push_back(message.token);
  --peers_[static_cast<size_t>(message.peer)].pending;
  message = {};
  free_messages_.push_back(id);
}

void ShmSender::Post(Rank peer, uint64_t tag, absl::Span<const std::byte> bytes, uint64_t token,
                     std::vector<uint64_t>* completed) {
  ShmEntry entry;
  entry.tag = tag;
  entry.length = static_cast<int64_t>(bytes.size());
  size_t payload = sizeof(uint64_t);
  std::optional<uint64_t> done_when_sent;
  const auto at = [&entry](uint64_t where) { PutInteger(entry.payload, where); };
  if (bytes.size() <= ShmEntry::kPayloadBytes) {
    payload = bytes.size();
    if (payload > 0) std::memcpy(entry.payload, bytes.data(), payload);
    entry.counted = MayTakeInEarly(peer, entry.length);
    if (entry.counted) {
      ++peers_[static_cast<size_t>(peer)].counted;
      done_when_sent = token;
    } else {
      entry.id = NewMessage(peer, bytes, token);
    }
    links_[peer]->Send(entry, payload, /*wake=*/true, done_when_sent, completed);
    return;
  }
  std::optional<int64_t> place;
  if (bytes.size() > kCopyBytes) place = group_.PlaceOf(bytes.data(), entry.length);
  const bool worth_a_copy =
      !place.has_value() && (bytes.size() <= kCopyUnregisteredBytes || !can_read_[peer]);
  std::optional<uint32_t> block;
  if (worth_a_copy && MayTakeInEarly(peer, entry.length)) {
    block = blocks_.TakeForMessage(entry.length);
  }
  if (block.has_value()) {
    block_use_[*block] = {.peer = peer, .unexpected = entry.length};
    peers_[static_cast<size_t>(peer)].unexpected += entry.length;
    std::memcpy(blocks_.At(*block), bytes.data(), bytes.size());
    entry.kind = ShmEntryKind::kInArena;
    entry.id = ShmEntry::kBlockBit | *block;
    at(static_cast<uint64_t>(group_.blocks_place() + ShmBlocks::OffsetOf(*block)));
    done_when_sent = token;
  } else {
    if (!place.has_value()) place = group_.PlaceOf(bytes.data(), entry.length);
    entry.id = NewMessage(peer, bytes, token);
    if (place.has_value()) {
      entry.kind = ShmEntryKind::kInArena;
      at(static_cast<uint64_t>(*place));
    } else if (can_read_[peer]) {
      entry.kind = ShmEntryKind::kAtAddress;
      at(reinterpret_cast<uintptr_t>(bytes.data()));
    } else {
      entry.kind = ShmEntryKind::kStaged;
    }
  }
  links_[peer]->Send(entry, payload, /*wake=*/true, done_when_sent, completed);
}

absl::Status ShmSender::OnTaken(Rank peer, const ShmEntry& entry,
                                std::vector<uint64_t>* completed) {
  const size_t count = std::min<size_t>(entry.taken, ShmEntry::kMostTaken);
  for (size_t i = 0; i < count; ++i) {
    uint32_t id = 0;
    GetInteger(entry.payload + i * sizeof(id), &id);
    if ((id & ShmEntry::kBlockBit) == 0) {
      if (id >= messages_.size() || messages_[id].peer != peer) return Nonsense("message", id);
      Finish(id, completed);
      continue;
    }
    const uint32_t number = id & ~ShmEntry::kBlockBit;
    if (number >= block_use_.size() || block_use_[number].peer != peer) {
      return Nonsense("block", number);
    }
    Block& block = block_use_[number];
    peers_[static_cast<size_t>(peer)].unexpected -= block.unexpected;
    if (block.message != kNone) --messages_[block.message].under_way;
    block = {};
    blocks_.Give(number);
  }
  return absl::OkStatus();
}

absl::Status ShmSender::OnPull(Rank peer, const ShmEntry& entry) {
  if (entry.id >= messages_.size() || messages_[entry.id].peer != peer ||
      messages_[entry.id].piece != 0 || entry.length < 1 || entry.length > ShmBlocks::kLargeBytes) {
    return Nonsense("a staged message", entry.id);
  }
  const auto multiple = static_cast<size_t>(entry.length);
  messages_[entry.id].piece = ShmBlocks::kLargeBytes / multiple * multiple;
  pulled_.push_back(entry.id);
  return absl::OkStatus();
}

void ShmSender::SendPieces(std::vector<uint64_t>* completed) {
  for (size_t left = pulled_.size(); left > 0; --left) {
    const uint32_t id = pulled_.front();
    pulled_.pop_front();
    Message& message = messages_[id];
    while (message.under_way < kPiecesUnderWay && message.staged < message.bytes.size()) {
      const std::optional<uint32_t> block = blocks_.TakeForPiece();
      if (!block.has_value()) break;
      block_use_[*block] = {.peer = message.peer, .message = id};
      ++message.under_way;
      const size_t size = std::min(message.piece, message.bytes.size() - message.staged);
      std::memcpy(blocks_.At(*block), message.bytes.data() + message.staged, size);
      message.staged += size;
      ShmEntry entry;
      entry.kind = ShmEntryKind::kPiece;
      entry.id = id;
      entry.tag = ShmEntry::kBlockBit | *block;
      entry.length = static_cast<int64_t>(size);
      PutInteger(entry.payload,
                 static_cast<uint64_t>(group_.blocks_place() + ShmBlocks::OffsetOf(*block)));
      links_[message.peer]->Send(entry, sizeof(uint64_t), /*wake=*/true, std::nullopt, completed);
    }
    if (message.staged < message.bytes.size()) pulled_.push_back(id);
  }
}

}  // namespace muster
