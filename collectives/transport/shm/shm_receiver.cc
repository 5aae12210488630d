#include "collectives/transport/shm/shm_receiver.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "collectives/transport/shm/shm_blocks.h"
#include "collectives/transport/wire.h"

namespace muster {
namespace {

// Messages in shared memory up to this size are read at once, longer ones in pieces between which
// the mesh may be closed.
constexpr int64_t kAtOnceBytes = 64 << 10;
constexpr int64_t kPieceBytes = 256 << 10;
static_assert(kPieceBytes <= StagingBuffer::kBytes);

uint64_t KeyOf(Rank peer, uint32_t id) { return (static_cast<uint64_t>(peer) << 32) | id; }

uint64_t WhereOf(const ShmEntry& entry) {
  uint64_t where = 0;
  GetInteger(entry.payload, &where);
  return where;
}

}  // namespace

ShmReceiver::ShmReceiver(ShmGroup& group, const std::vector<std::unique_ptr<ShmLink>>& links,
                         const TransportLimits& limits)
    : group_(group), links_(links) {
  peers_.reserve(static_cast<size_t>(group.size()));
  for (int r = 0; r < group.size(); ++r) peers_.emplace_back(limits);
}

absl::Status ShmReceiver::Post(Rank peer, const PendingReceive& receive,
                               std::vector<uint64_t>* completed) {
  Peer& state = peers_[static_cast<size_t>(peer)];
  MUSTER_ASSIGN_OR_RETURN(const bool served, state.receives.Post(receive));
  MUSTER_CHECK(!served) << "what came early is kept here";
  const auto early = state.early.lower_bound(receive.tag);
  if (early == state.early.end() || early->first != receive.tag) return absl::OkStatus();
  const auto entry = state.early.extract(early);
  return Begin(peer, entry.mapped(), *state.receives.Take(receive.tag), completed);
}

absl::Status ShmReceiver::OnMessage(Rank peer, const ShmEntry& entry,
                                    std::vector<uint64_t>* completed) {
  Peer& state = peers_[static_cast<size_t>(peer)];
  if (const auto receive = state.receives.Take(entry.tag); receive.has_value()) {
    return Begin(peer, entry, *receive, completed);
  }
  state.early.emplace(entry.tag, entry);
  return absl::OkStatus();
}

absl::Status ShmReceiver::Begin(Rank peer, const ShmEntry& entry, const PendingReceive& receive,
                                std::vector<uint64_t>* completed) {
  if (receive.length != entry.length) {
    return LengthMismatch(entry.tag, receive.length, entry.length);
  }
  if (entry.kind == ShmEntryKind::kInline) {
    const auto size = std::min(static_cast<size_t>(entry.length), ShmEntry::kPayloadBytes);
    Give(receive, 0, absl::MakeConstSpan(entry.payload, size));
    if (entry.counted) {
      links_[peer]->NoteServed();
    } else {
      NoteTaken(peer, entry.id, /*wake=*/true);
    }
    Finish(peer, receive, completed);
    return absl::OkStatus();
  }
  Transfer transfer = {.peer = peer, .id = entry.id, .where = WhereOf(entry), .receive = receive};
  if (entry.kind == ShmEntryKind::kStaged) {
    ShmEntry pull;
    pull.kind = ShmEntryKind::kPull;
    pull.id = entry.id;
    pull.length = receive.element_bytes;
    staged_.emplace(KeyOf(peer, entry.id), std::move(transfer));
    links_[peer]->Send(pull, 0, /*wake=*/true, std::nullopt, completed);
    return absl::OkStatus();
  }
  transfer.at_address = entry.kind == ShmEntryKind::kAtAddress;
  if (!transfer.at_address) {
    const auto place = static_cast<int64_t>(transfer.where);
    if (!group_.Holds(peer, place, entry.length)) {
      return absl::InvalidArgumentError(
          absl::StrCat("it sent ", entry.length, " bytes at ", place, " of its arena, which ends"));
    }
    if (entry.length <= kAtOnceBytes) {
      Give(receive, 0, absl::MakeConstSpan(group_.At(peer, place), entry.length));
      const bool in_block = (entry.id & ShmEntry::kBlockBit) != 0;
      // A block is left alone even by a sender that closes.
      if (!in_block) MUSTER_RETURN_IF_ERROR(CheckStillThere(peer, /*by_kernel=*/false));
      NoteTaken(peer, entry.id, /*wake=*/!in_block);
      Finish(peer, receive, completed);
      return absl::OkStatus();
    }
  }
  ready_.push_back(std::move(transfer));
  return absl::OkStatus();
}

absl::Status ShmReceiver::Move(Rank* peer, std::vector<uint64_t>* completed) {
  Transfer& transfer = ready_.front();
  const PendingReceive& receive = transfer.receive;
  *peer = transfer.peer;
  const int64_t most = kPieceBytes / receive.element_bytes * receive.element_bytes;
  const int64_t size = std::min(most, receive.length - transfer.moved);
  const uint64_t where = transfer.where + static_cast<uint64_t>(transfer.moved);
  if (transfer.at_address) {
    std::byte* const to =
        receive.consumer == nullptr ? receive.destination + transfer.moved : staging_.data();
    const auto bytes = absl::MakeSpan(to, static_cast<size_t>(size));
    MUSTER_RETURN_IF_ERROR(group_.Read(*peer, where, bytes));
    if (receive.consumer != nullptr) Give(receive, transfer.moved, bytes);
  } else {
    Give(receive, transfer.moved,
         absl::MakeConstSpan(group_.At(*peer, static_cast<int64_t>(where)), size));
  }
  transfer.moved += size;
  if (transfer.moved < receive.length) return absl::OkStatus();
  MUSTER_RETURN_IF_ERROR(CheckStillThere(*peer, transfer.at_address));
  NoteTaken(*peer, transfer.id, /*wake=*/true);
  Finish(*peer, receive, completed);
  ready_.pop_front();
  return absl::OkStatus();
}

absl::Status ShmReceiver::OnPiece(Rank peer, const ShmEntry& entry,
                                  std::vector<uint64_t>* completed) {
  const auto it = staged_.find(KeyOf(peer, entry.id));
  const auto place = static_cast<int64_t>(WhereOf(entry));
  if (it == staged_.end() || entry.length < 1 ||
      entry.length > it->second.receive.length - it->second.moved ||
      entry.length % it->second.receive.element_bytes != 0 ||
      !group_.Holds(peer, place, entry.length)) {
    return absl::InvalidArgumentError(
        absl::StrCat("it sent a piece of ", entry.length, " bytes that nothing here lacks"));
  }
  Transfer& transfer = it->second;
  Give(transfer.receive, transfer.moved, absl::MakeConstSpan(group_.At(peer, place), entry.length));
  transfer.moved += entry.length;
  NoteTaken(peer, static_cast<uint32_t>(entry.tag), /*wake=*/true);
  if (transfer.moved < transfer.receive.length) return absl::OkStatus();
  NoteTaken(peer, entry.id, /*wake=*/true);
  Finish(peer, transfer.receive, completed);
  staged_.erase(it);
  return absl::OkStatus();
}

void ShmReceiver::Give(const PendingReceive& receive, int64_t offset,
                       absl::Span<const std::byte> bytes) {
  if (bytes.empty()) return;
  if (receive.consumer == nullptr) {
    std::memcpy(receive.destination + offset, bytes.data(), bytes.size());
    return;
  }
  const auto element = static_cast<uintptr_t>(receive.element_bytes);
  if (reinterpret_cast<uintptr_t>(bytes.data()) % element == 0) {
    receive.consumer->Consume(receive.token, offset, bytes);
    return;
  }
  const size_t most = StagingBuffer::kBytes / element * element;
  while (!bytes.empty()) {
    const size_t size = std::min(most, bytes.size());
    std::memcpy(staging_.data(), bytes.data(), size);
    receive.consumer->Consume(receive.token, offset, absl::MakeConstSpan(staging_.data(), size));
    offset += static_cast<int64_t>(size);
    bytes.remove_prefix(size);
  }
}

void ShmReceiver::Finish(Rank peer, const PendingReceive& receive,
                         std::vector<uint64_t>* completed) {
  peers_[static_cast<size_t>(peer)].receives.Finished(receive);
  completed->push_back(receive.token);
}

void ShmReceiver::NoteTaken(Rank peer, uint32_t id, bool wake) {
  Peer& state = peers_[static_cast<size_t>(peer)];
  if (state.taken.empty()) to_tell_.push_back(peer);
  state.taken.push_back(id);
  state.wake = state.wake || wake;
}

void ShmReceiver::TellTaken(std::vector<uint64_t>* completed) {
  for (const Rank peer : to_tell_) {
    Peer& state = peers_[static_cast<size_t>(peer)];
    for (size_t begin = 0; begin < state.taken.size(); begin += ShmEntry::kMostTaken) {
      ShmEntry entry;
      entry.kind = ShmEntryKind::kTaken;
      const size_t count = std::min(state.taken.size() - begin, ShmEntry::kMostTaken);
      entry.taken = static_cast<uint8_t>(count);
      std::memcpy(entry.payload, state.taken.data() + begin, count * sizeof(uint32_t));
      links_[peer]->Send(entry, count * sizeof(uint32_t), state.wake, std::nullopt, completed);
    }
    state.taken.clear();
    state.wake = false;
  }
  to_tell_.clear();
}

absl::Status ShmReceiver::CheckStillThere(Rank peer, bool by_kernel) const {
  std::atomic_thread_fence(std::memory_order_acquire);
  // The number of a process that has ended may be another's.
  if (group_.IsClosed(peer) || (by_kernel && group_.HasEnded(peer))) {
    return absl::UnavailableError("it left while its memory was read");
  }
  return absl::OkStatus();
}

}  // namespace muster
