#include "collectives/transport/receive_table.h"

#include <cstring>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace muster {

absl::Status LengthMismatch(uint64_t tag, int64_t expected, int64_t got) {
  return absl::InvalidArgumentError(
      absl::StrFormat("message %#x has %d bytes where %d were expected", tag, got, expected));
}

absl::Status ReceiveTable::Serve(const PendingReceive& receive, const Early& early) {
  if (receive.length != early.length) {
    return LengthMismatch(receive.tag, receive.length, early.length);
  }
  const auto bytes = absl::MakeConstSpan(early.bytes.get(), static_cast<size_t>(early.length));
  if (receive.consumer != nullptr) {
    if (!bytes.empty()) receive.consumer->Consume(receive.token, 0, bytes);
  } else if (!bytes.empty()) {
    std::memcpy(receive.destination, bytes.data(), bytes.size());
  }
  early_bytes_ -= early.length;
  return absl::OkStatus();
}

absl::StatusOr<bool> ReceiveTable::Post(const PendingReceive& receive) {
  const auto early = early_.find(receive.tag);
  if (early != early_.end() && early->second.complete) {
    MUSTER_RETURN_IF_ERROR(Serve(receive, early->second));
    early_.erase(early);
    return true;
  }
  const bool inserted = pending_.emplace(receive.tag, receive).second;
  MUSTER_CHECK(inserted) << "tag " << receive.tag << " is awaited already";
  MUSTER_CHECK_LE(pending_.size(), static_cast<size_t>(limits_.max_pending_per_peer));
  due_ += receive.standing ? 0 : 1;
  return false;
}

std::optional<PendingReceive> ReceiveTable::Take(uint64_t tag) {
  const auto it = pending_.find(tag);
  if (it == pending_.end()) return std::nullopt;
  const PendingReceive receive = it->second;
  pending_.erase(it);
  return receive;
}

std::byte* ReceiveTable::Reserve(uint64_t tag, int64_t length) {
  // An empty message costs no bytes but an entry; count it as one header.
  if (length > limits_.eager_bytes || early_bytes_ + length > limits_.unexpected_bytes ||
      early_.size() >= static_cast<size_t>(limits_.max_pending_per_peer) || early_.contains(tag)) {
    return nullptr;
  }
  Early& early = early_[tag];
  early.bytes = std::make_unique<std::byte[]>(static_cast<size_t>(length) + 1);
  early.length = length;
  early_bytes_ += length;
  return early.bytes.get();
}

absl::StatusOr<bool> ReceiveTable::Deliver(uint64_t tag, uint64_t* token) {
  const auto it = early_.find(tag);
  MUSTER_CHECK(it != early_.end());
  it->second.complete = true;
  const std::optional<PendingReceive> receive = Take(tag);
  if (!receive.has_value()) return false;
  Finished(*receive);
  MUSTER_RETURN_IF_ERROR(Serve(*receive, it->second));
  early_.erase(it);
  *token = receive->token;
  return true;
}

}  // namespace muster
