#include "collectives/transport/ofi/ofi_sender.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "collectives/transport/ofi/ofi_receiver.h"

namespace muster {

OfiSender::OfiSender(const OfiRails& rails, const OfiRegions& regions,
                     std::vector<std::unique_ptr<OfiPeerLink>>& links,
                     const std::vector<OfiWriteTarget>& targets, const TransportLimits& limits)
    : rails_(rails),
      regions_(regions),
      links_(links),
      targets_(targets),
      limits_(limits),
      peers_(links.size()),
      waiting_(rails.size()) {}

void OfiSender::Clear() {
  for (Peer& peer : peers_) peer = Peer();
  for (std::deque<Write>& writes : waiting_) writes.clear();
  messages_ = 0;
}

void OfiSender::Post(Rank peer, uint64_t tag, absl::Span<const std::byte> bytes, uint64_t token) {
  OfiPeerLink& link = *links_[static_cast<size_t>(peer)];
  const auto length = static_cast<int64_t>(bytes.size());
  if (link.TakeBudget(length)) {
    link.QueueEager(tag, bytes, token);
    return;
  }
  Peer& state = PeerAt(peer);
  const auto [entry, inserted] = state.messages.try_emplace(tag, std::make_unique<Message>());
  MUSTER_CHECK(inserted) << "tag " << tag << " is in use already";
  MUSTER_CHECK_LE(pending(peer), limits_.max_pending_per_peer);
  ++messages_;
  Message& message = *entry->second;
  message.peer = peer;
  message.tag = tag;
  message.bytes = bytes;
  message.token = token;
  message.regions = OfiTransferRegions(bytes.data(), bytes.size(), FI_WRITE);
  const auto early = state.early_grants.find(tag);
  if (early != state.early_grants.end()) {
    const std::vector<OfiGrant> grants = std::move(early->second);
    state.early_grants.erase(early);
    state.early_count -= static_cast<int>(grants.size());
    if (grants.front().message_length == length) {
      for (const OfiGrant& grant : grants) QueueWrite(message, grant);
      return;
    }
    // The receive is for a message of another length: the request will be answered by the error.
  }
  message.requested = true;
  link.QueueRecord(OfiRequest{tag, length});
}

absl::Status OfiSender::OnGrant(Rank peer, const OfiGrant& grant) {
  if (grant.rail >= rails_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("a grant for rail ", grant.rail));
  }
  Peer& state = PeerAt(peer);
  const auto found = state.messages.find(grant.tag);
  // One that has arrived waits for the provider only: the grant is for the next of that tag.
  if (found == state.messages.end() || found->second->done) {
    std::vector<OfiGrant>& early = state.early_grants[grant.tag];
    if (++state.early_count > OfiReceiver::kSlots ||
        (!early.empty() && early.front().message_length != grant.message_length)) {
      return absl::InvalidArgumentError(absl::StrCat(state.early_count, " grants, one for message ",
                                                     grant.tag, " of ", grant.message_length,
                                                     " bytes, before these messages"));
    }
    early.push_back(grant);
    return absl::OkStatus();
  }
  Message& message = *found->second;
  const auto length = static_cast<int64_t>(message.bytes.size());
  if (grant.message_length != length && message.requested) return absl::OkStatus();  // As in Post.
  if (grant.message_length != length || grant.length > length - message.granted) {
    return absl::InvalidArgumentError(absl::StrCat("a grant of bytes ", grant.offset, " to ",
                                                   grant.offset + grant.length, " of a message of ",
                                                   length));
  }
  QueueWrite(message, grant);
  return absl::OkStatus();
}

void OfiSender::QueueWrite(Message& message, const OfiGrant& grant) {
  ++message.writes;
  message.granted += grant.length;
  waiting_[grant.rail].push_back({&message, grant});
}

absl::Status OfiSender::OnDone(Rank peer, uint64_t tag, std::vector<uint64_t>* completed) {
  Peer& state = PeerAt(peer);
  const auto found = state.messages.find(tag);
  if (found == state.messages.end() || found->second->done ||
      found->second->granted != static_cast<int64_t>(found->second->bytes.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("word that message ", tag, " has arrived, which was not sent"));
  }
  found->second->done = true;
  FinishIfWhole(*found->second, completed);
  return absl::OkStatus();
}

void OfiSender::FinishIfWhole(Message& message, std::vector<uint64_t>* completed) {
  if (!message.done || message.writes > 0) return;
  completed->push_back(message.token);
  --messages_;
  PeerAt(message.peer).messages.erase(message.tag);
}

OfiOperation* OfiSender::TakeOperation() {
  if (free_operations_.empty()) {
    OfiOperation& operation = operations_.emplace_back();
    operation.index = static_cast<uint32_t>(outstanding_.size());
    outstanding_.emplace_back();
    return &operation;
  }
  OfiOperation* const operation = &operations_[free_operations_.back()];
  free_operations_.pop_back();
  return operation;
}

absl::Status OfiSender::OnWritten(const OfiOperation& write, std::vector<uint64_t>* completed) {
  const Write& finished = outstanding_[write.index];
  Message& message = *finished.message;
  if (!targets_[static_cast<size_t>(message.peer)].with_immediates) {
    links_[static_cast<size_t>(message.peer)]->QueueRecord(
        OfiWritten{OfiImmediate(finished.grant.slot, message.requested)});
  }
  free_operations_.push_back(write.index);
  --message.writes;
  FinishIfWhole(message, completed);
  return absl::OkStatus();
}

absl::Status OfiSender::PostWrites(Rank* culprit, bool* moved) {
  for (size_t r = 0; r < rails_.size(); ++r) {
    while (!waiting_[r].empty()) {
      const Write& next = waiting_[r].front();
      Message& message = *next.message;
      *culprit = message.peer;
      const OfiWriteTarget& target = targets_[static_cast<size_t>(message.peer)];
      OfiRail::Write write;
      write.to = target.addresses[r];
      write.bytes = message.bytes.data() + next.grant.offset;
      write.size = static_cast<size_t>(next.grant.length);
      if (rails_[r]->needs_local_registration()) {
        MUSTER_ASSIGN_OR_RETURN(const OfiRegion* region, message.regions.On(r, rails_, regions_));
        write.descriptor = region->descriptor();
      }
      write.address = next.grant.address;
      write.key = next.grant.key;
      write.immediate = OfiImmediate(next.grant.slot, message.requested);
      write.with_immediate = target.with_immediates;
      OfiOperation* const operation = TakeOperation();
      operation->peer = message.peer;
      outstanding_[operation->index] = next;
      MUSTER_ASSIGN_OR_RETURN(const bool posted, rails_[r]->PostWrite(write, operation));
      if (!posted) {
        free_operations_.push_back(operation->index);
        break;
      }
      *moved = true;
      waiting_[r].pop_front();
    }
  }
  return absl::OkStatus();
}

}  // namespace muster
