#include "collectives/transport/ofi/ofi_sender.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace muster {

OfiSender::OfiSender(const OfiRails& rails, const OfiRegions& regions,
                     std::vector<std::unique_ptr<OfiPeerLink>>& links,
                     const std::vector<OfiWriteTarget>& targets, const TransportLimits& limits)
    : rails_(rails),
      regions_(regions),
      links_(links),
      targets_(targets),
      limits_(limits),
      pending_(links.size(), 0),
      waiting_(rails.size()) {}

void OfiSender::Post(Rank peer, uint64_t tag, absl::Span<const std::byte> bytes, uint64_t token) {
  OfiPeerLink& link = *links_[static_cast<size_t>(peer)];
  if (link.TakeBudget(static_cast<int64_t>(bytes.size()))) {
    link.QueueEager(tag, bytes, token);
    return;
  }
  int& pending = pending_[static_cast<size_t>(peer)];
  ++pending;
  MUSTER_CHECK_LE(pending, limits_.max_pending_per_peer);
  while (messages_.contains(next_id_)) ++next_id_;
  const uint32_t id = next_id_++;
  auto message = std::make_unique<Message>();
  message->peer = peer;
  message->bytes = bytes;
  message->token = token;
  message->regions = OfiTransferRegions(bytes.data(), bytes.size(), FI_WRITE);
  messages_.emplace(id, std::move(message));
  std::byte payload[kOfiRequestBytes];
  EncodeOfiRequest({static_cast<int64_t>(bytes.size()), id}, payload);
  link.QueueControl(OfiPacketKind::kRequest, tag, payload);
}

absl::Status OfiSender::OnGrant(Rank peer, uint64_t send_id, const OfiGrant& grant) {
  const auto found = messages_.find(static_cast<uint32_t>(send_id));
  if (found == messages_.end() || found->second->peer != peer) {
    return absl::InvalidArgumentError(absl::StrCat("a grant for unknown message ", send_id));
  }
  Message& message = *found->second;
  const auto length = static_cast<int64_t>(message.bytes.size());
  if (grant.rail >= rails_.size() || grant.length <= 0 || grant.offset < 0 ||
      grant.length > length || grant.offset > length - grant.length ||
      grant.length > length - message.granted) {
    return absl::InvalidArgumentError(absl::StrCat("a grant for bytes ", grant.offset, " and ",
                                                   grant.length, " more, on rail ", grant.rail,
                                                   ", of a message of ", length));
  }
  message.granted += grant.length;
  ++message.writes;
  waiting_[grant.rail].push_back({static_cast<uint32_t>(send_id), grant});
  return absl::OkStatus();
}

absl::Status OfiSender::OnDone(Rank peer, uint64_t send_id, std::vector<uint64_t>* completed) {
  const auto found = messages_.find(static_cast<uint32_t>(send_id));
  if (found == messages_.end() || found->second->peer != peer || found->second->done ||
      found->second->granted != static_cast<int64_t>(found->second->bytes.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("word that message ", send_id, " has arrived, which was not sent"));
  }
  found->second->done = true;
  FinishIfWhole(static_cast<uint32_t>(send_id), completed);
  return absl::OkStatus();
}

void OfiSender::FinishIfWhole(uint32_t send_id, std::vector<uint64_t>* completed) {
  const auto found = messages_.find(send_id);
  const Message& message = *found->second;
  if (!message.done || message.writes > 0) return;
  completed->push_back(message.token);
  --pending_[static_cast<size_t>(message.peer)];
  messages_.erase(found);
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
  const uint32_t send_id = finished.send_id;
  const auto found = messages_.find(send_id);
  MUSTER_CHECK(found != messages_.end());
  const Rank peer = found->second->peer;
  if (!targets_[static_cast<size_t>(peer)].with_immediates) {
    links_[static_cast<size_t>(peer)]->QueueControl(OfiPacketKind::kWritten, finished.grant.slot);
  }
  free_operations_.push_back(write.index);
  --found->second->writes;
  FinishIfWhole(send_id, completed);
  return absl::OkStatus();
}

absl::Status OfiSender::PostWrites(Rank* culprit, bool* moved) {
  for (size_t r = 0; r < rails_.size(); ++r) {
    while (!waiting_[r].empty()) {
      const Write& next = waiting_[r].front();
      Message& message = *messages_.at(next.send_id);
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
      write.immediate = next.grant.slot;
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
