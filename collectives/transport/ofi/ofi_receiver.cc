#include "collectives/transport/ofi/ofi_receiver.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace muster {
namespace {

// A slot on the wire: index below, generation above.
constexpr uint32_t kSlotBits = 12;
constexpr uint32_t kSlotMask = (1 << kSlotBits) - 1;
static_assert(OfiReceiver::kSlots <= kSlotMask + 1);

uint32_t SlotOnWire(int index, uint32_t generation) {
  return ((generation << kSlotBits) | static_cast<uint32_t>(index)) % kOfiSlots;
}

absl::Status TagInUse(uint64_t tag) {
  return absl::InvalidArgumentError(
      absl::StrCat("message ", tag, " was announced while another one of that tag was sent"));
}

// Messages shorter than this are not spread over rails.
constexpr int64_t kMinStripeBytes = 128 << 10;
// Stripes begin at pages, so that no two rails write to one.
constexpr int64_t kStripeAlignment = 4096;

}  // namespace

OfiReceiver::OfiReceiver(const OfiRails& rails, const OfiRegions& regions,
                         std::vector<std::unique_ptr<OfiPeerLink>>& links,
                         const TransportLimits& limits, int64_t longest_early)
    : rails_(rails),
      regions_(regions),
      links_(links),
      longest_early_(longest_early),
      staging_memory_(kStagingBytes * kStagingPieces),
      staging_regions_(staging_memory_.data(), kStagingBytes * kStagingPieces, FI_REMOTE_WRITE),
      slots_(kSlots),
      by_tag_(links.size()) {
  for (size_t r = 0; r < links.size(); ++r) inboxes_.emplace_back(limits);
  for (int i = kStagingPieces; i-- > 0;) free_staging_.push_back(i);
  for (int i = kSlots; i-- > 0;) free_slots_.push_back(i);
}

absl::Status OfiReceiver::Init() {
  for (size_t r = 0; r < rails_.size(); ++r) {
    MUSTER_RETURN_IF_ERROR(staging_regions_.On(r, rails_, regions_).status());
  }
  return absl::OkStatus();
}

void OfiReceiver::Clear() {
  incoming_.clear();
  for (auto& tags : by_tag_) tags.clear();
  ungranted_.clear();
  awaited_.clear();
  staging_regions_ = {};
}

absl::Status OfiReceiver::Serve(Rank peer, const PendingReceive& receive,
                                absl::Span<const std::byte> bytes,
                                std::vector<uint64_t>* completed) {
  const auto length = static_cast<int64_t>(bytes.size());
  if (length != receive.length) return LengthMismatch(receive.tag, receive.length, length);
  if (!bytes.empty()) {
    if (receive.consumer != nullptr) {
      receive.consumer->Consume(receive.token, 0, bytes);
    } else {
      std::memcpy(receive.destination, bytes.data(), bytes.size());
    }
  }
  links_[static_cast<size_t>(peer)]->Served(length);
  inboxes_[static_cast<size_t>(peer)].Finished(receive);
  completed->push_back(receive.token);
  return absl::OkStatus();
}

absl::Status OfiReceiver::Post(Rank peer, const PendingReceive& receive,
                               std::vector<uint64_t>* completed) {
  OfiInbox& inbox = inboxes_[static_cast<size_t>(peer)];
  std::optional<OfiArrival> arrival = inbox.Post(receive);
  if (arrival.has_value()) {
    if (arrival->bytes != nullptr) return Serve(peer, receive, arrival->span(), completed);
    return Begin(peer, receive, arrival->length, completed);
  }
  // While a message of the tag is on its way, a grant for the next could be taken for one of its
  // own.
  if (receive.length <= longest_early_ ||
      by_tag_[static_cast<size_t>(peer)].contains(receive.tag)) {
    return absl::OkStatus();
  }
  inbox.Take(receive.tag);
  awaited_.push_back(AddIncoming(peer, receive).id);
  return absl::OkStatus();
}

absl::Status OfiReceiver::OnEager(Rank peer, uint64_t tag, absl::Span<const std::byte> bytes,
                                  bool driving, std::vector<uint64_t>* completed) {
  OfiInbox& inbox = inboxes_[static_cast<size_t>(peer)];
  const auto& tags = by_tag_[static_cast<size_t>(peer)];
  if (const auto awaited = tags.find(tag); awaited != tags.end() && !awaited->second->on_its_way) {
    return LengthMismatch(tag, awaited->second->receive.length, static_cast<int64_t>(bytes.size()));
  }
  const std::optional<PendingReceive> receive = inbox.Take(tag);
  if (receive.has_value() && (receive->consumer == nullptr || driving)) {
    return Serve(peer, *receive, bytes, completed);
  }
  OfiArrival arrival;
  arrival.length = static_cast<int64_t>(bytes.size());
  arrival.bytes = std::make_unique<std::byte[]>(bytes.size() + 1);
  std::copy(bytes.begin(), bytes.end(), arrival.bytes.get());
  if (receive.has_value()) {
    early_.push_back({peer, *receive, std::move(arrival)});
    return absl::OkStatus();
  }
  return inbox.Keep(tag, std::move(arrival));
}

absl::Status OfiReceiver::OnRequest(Rank peer, const OfiRequest& request,
                                    std::vector<uint64_t>* completed) {
  OfiInbox& inbox = inboxes_[static_cast<size_t>(peer)];
  const auto& tags = by_tag_[static_cast<size_t>(peer)];
  if (const auto found = tags.find(request.tag); found != tags.end()) {
    Incoming& incoming = *found->second;
    if (incoming.receive.length != request.length) {
      return LengthMismatch(request.tag, incoming.receive.length, request.length);
    }
    if (incoming.request_came || (incoming.on_its_way && !incoming.request_due)) {
      return TagInUse(request.tag);
    }
    incoming.request_came = true;
    SetOnItsWay(incoming);
    FinishIfWhole(incoming, completed);
    return absl::OkStatus();
  }
  const std::optional<PendingReceive> receive = inbox.Take(request.tag);
  if (receive.has_value()) return Begin(peer, *receive, request.length, completed);
  OfiArrival arrival;
  arrival.length = request.length;
  return inbox.Keep(request.tag, std::move(arrival));
}

absl::Status OfiReceiver::Begin(Rank peer, const PendingReceive& receive, int64_t length,
                                std::vector<uint64_t>* completed) {
  if (length != receive.length) return LengthMismatch(receive.tag, receive.length, length);
  if (by_tag_[static_cast<size_t>(peer)].contains(receive.tag)) return TagInUse(receive.tag);
  Incoming& incoming = AddIncoming(peer, receive);
  incoming.request_came = true;
  SetOnItsWay(incoming);
  FinishIfWhole(incoming, completed);
  return absl::OkStatus();
}

void OfiReceiver::SetOnItsWay(Incoming& incoming) {
  if (std::exchange(incoming.on_its_way, true)) return;
  slots_ahead_ -= incoming.granted_ahead;
  if (incoming.receive.consumer != nullptr) staging_ahead_ -= incoming.granted_ahead;
  if (incoming.granted < incoming.receive.length) ungranted_.push_back(incoming.id);
}

OfiReceiver::Incoming& OfiReceiver::AddIncoming(Rank peer, const PendingReceive& receive) {
  auto incoming = std::make_unique<Incoming>();
  incoming->id = next_id_++;
  incoming->peer = peer;
  incoming->receive = receive;
  incoming->next_rail = static_cast<size_t>(incoming->id) % rails_.size();
  const int64_t length = receive.length;
  const auto rails = static_cast<int64_t>(rails_.size());
  int64_t piece = length;
  if (receive.consumer != nullptr) {
    const auto staging = static_cast<int64_t>(kStagingBytes);
    piece = staging - staging % receive.element_bytes;
  } else if (rails > 1 && length >= 2 * kMinStripeBytes) {
    piece = std::max((length + rails - 1) / rails, kMinStripeBytes);
    piece = (piece + kStripeAlignment - 1) / kStripeAlignment * kStripeAlignment;
  }
  for (const auto& rail : rails_) {
    const int64_t limit = rail->max_message_bytes();
    piece = std::min(piece, limit - limit % receive.element_bytes);
  }
  incoming->piece_bytes = piece;
  if (receive.consumer == nullptr) {
    incoming->regions =
        OfiTransferRegions(receive.destination, static_cast<size_t>(length), FI_REMOTE_WRITE);
  }
  Incoming& placed = *incoming;
  incoming_.emplace(placed.id, std::move(incoming));
  by_tag_[static_cast<size_t>(peer)].emplace(receive.tag, &placed);
  return placed;
}

absl::StatusOr<bool> OfiReceiver::GrantPiece(Incoming& incoming) {
  const bool staged = incoming.receive.consumer != nullptr;
  if (free_slots_.empty() || (staged && free_staging_.empty())) return false;
  const size_t rail = incoming.next_rail;
  OfiGrant grant;
  grant.tag = incoming.receive.tag;
  grant.message_length = incoming.receive.length;
  grant.rail = static_cast<uint32_t>(rail);
  grant.offset = incoming.granted;
  grant.length = std::min(incoming.piece_bytes, incoming.receive.length - incoming.granted);
  std::byte* target = nullptr;
  const OfiRegion* region = nullptr;
  if (staged) {
    const int staging = free_staging_.back();
    free_staging_.pop_back();
    target = Staging(staging);
    MUSTER_ASSIGN_OR_RETURN(region, staging_regions_.On(rail, rails_, regions_));
    incoming.pieces.push_back({grant.offset, grant.length, staging, false});
  } else {
    target = incoming.receive.destination + grant.offset;
    MUSTER_ASSIGN_OR_RETURN(region, incoming.regions.On(rail, rails_, regions_));
  }
  grant.address = region->AddressOf(target);
  grant.key = region->key();
  const int index = free_slots_.back();
  free_slots_.pop_back();
  Slot& slot = slots_[static_cast<size_t>(index)];
  slot.incoming = &incoming;
  slot.offset = grant.offset;
  slot.length = grant.length;
  grant.slot = SlotOnWire(index, slot.generation);
  incoming.granted += grant.length;
  incoming.next_rail = (rail + 1) % rails_.size();
  links_[static_cast<size_t>(incoming.peer)]->QueueRecord(grant);
  return true;
}

absl::Status OfiReceiver::Grant(Rank* culprit, bool* moved) {
  for (size_t left = ungranted_.size(); left > 0 && !free_slots_.empty(); --left) {
    Incoming& incoming = *incoming_.at(ungranted_.front());
    *culprit = incoming.peer;
    while (incoming.granted < incoming.receive.length) {
      MUSTER_ASSIGN_OR_RETURN(const bool granted, GrantPiece(incoming));
      if (!granted) break;
      *moved = true;
    }
    // One that waits for staging memory must not keep others waiting that need none.
    if (incoming.granted < incoming.receive.length) ungranted_.push_back(incoming.id);
    ungranted_.pop_front();
  }
  return GrantAhead(culprit, moved);
}

absl::Status OfiReceiver::GrantAhead(Rank* culprit, bool* moved) {
  for (; !awaited_.empty(); awaited_.pop_front()) {
    const auto found = incoming_.find(awaited_.front());
    if (found == incoming_.end() || found->second->on_its_way) continue;
    Incoming& incoming = *found->second;
    *culprit = incoming.peer;
    const bool staged = incoming.receive.consumer != nullptr;
    while (incoming.granted < incoming.receive.length) {
      if (slots_ahead_ >= kMostAhead || (staged && staging_ahead_ >= kMostStagingAhead)) {
        return absl::OkStatus();
      }
      MUSTER_ASSIGN_OR_RETURN(const bool granted, GrantPiece(incoming));
      if (!granted) return absl::OkStatus();
      ++incoming.granted_ahead;
      ++slots_ahead_;
      if (staged) ++staging_ahead_;
      *moved = true;
    }
  }
  return absl::OkStatus();
}

absl::Status OfiReceiver::OnPiece(uint32_t immediate, bool driving,
                                  std::vector<uint64_t>* completed) {
  const uint32_t index = immediate & kSlotMask;
  if (index >= slots_.size() || slots_[index].incoming == nullptr ||
      SlotOnWire(static_cast<int>(index), slots_[index].generation) != SlotOfImmediate(immediate)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a write arrived for slot ", SlotOfImmediate(immediate), ", which was not granted"));
  }
  Slot& slot = slots_[index];
  Incoming& incoming = *std::exchange(slot.incoming, nullptr);
  ++slot.generation;
  free_slots_.push_back(static_cast<int>(index));
  incoming.request_due = incoming.request_due || IsOfRequested(immediate);
  SetOnItsWay(incoming);
  if (incoming.receive.consumer == nullptr) {
    incoming.arrived += slot.length;
    FinishIfWhole(incoming, completed);
    return absl::OkStatus();
  }
  for (Piece& piece : incoming.pieces) {
    if (piece.offset == slot.offset) piece.arrived = true;
  }
  if (driving) {
    Consume(incoming, completed);
  } else if (!std::exchange(incoming.delivery_waits, true)) {
    staged_.push_back(incoming.id);
  }
  return absl::OkStatus();
}

void OfiReceiver::Consume(Incoming& incoming, std::vector<uint64_t>* completed) {
  while (!incoming.pieces.empty() && incoming.pieces.front().arrived) {
    const Piece piece = incoming.pieces.front();
    incoming.pieces.pop_front();
    incoming.receive.consumer->Consume(
        incoming.receive.token, piece.offset,
        absl::MakeConstSpan(Staging(piece.staging), static_cast<size_t>(piece.length)));
    free_staging_.push_back(piece.staging);
    incoming.arrived += piece.length;
  }
  FinishIfWhole(incoming, completed);
}

void OfiReceiver::FinishIfWhole(Incoming& incoming, std::vector<uint64_t>* completed) {
  if (incoming.arrived < incoming.receive.length || incoming.delivery_waits ||
      (incoming.request_due && !incoming.request_came)) {
    return;
  }
  links_[static_cast<size_t>(incoming.peer)]->QueueRecord(OfiDone{incoming.receive.tag});
  inboxes_[static_cast<size_t>(incoming.peer)].Finished(incoming.receive);
  completed->push_back(incoming.receive.token);
  by_tag_[static_cast<size_t>(incoming.peer)].erase(incoming.receive.tag);
  incoming_.erase(incoming.id);
}

absl::Status OfiReceiver::Deliver(std::vector<uint64_t>* completed) {
  while (!early_.empty()) {
    const EarlyDelivery delivery = std::move(early_.front());
    early_.pop_front();
    MUSTER_RETURN_IF_ERROR(
        Serve(delivery.peer, delivery.receive, delivery.arrival.span(), completed));
  }
  while (!staged_.empty()) {
    Incoming& incoming = *incoming_.at(staged_.front());
    staged_.pop_front();
    incoming.delivery_waits = false;
    Consume(incoming, completed);
  }
  return absl::OkStatus();
}

}  // namespace muster
