#include "collectives/transport/ofi/ofi_inbox.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace muster {

std::optional<OfiArrival> OfiInbox::Post(const PendingReceive& receive) {
  ++unfinished_;
  MUSTER_CHECK_LE(unfinished_, limits_.max_pending_per_peer);
  due_ += receive.standing ? 0 : 1;
  const auto found = arrivals_.find(receive.tag);
  if (found != arrivals_.end()) {
    OfiArrival arrival = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) arrivals_.erase(found);
    --kept_;
    return arrival;
  }
  const bool inserted = awaited_.emplace(receive.tag, receive).second;
  MUSTER_CHECK(inserted) << "tag " << receive.tag << " is awaited already";
  return std::nullopt;
}

std::optional<PendingReceive> OfiInbox::Take(uint64_t tag) {
  const auto found = awaited_.find(tag);
  if (found == awaited_.end()) return std::nullopt;
  const PendingReceive receive = found->second;
  awaited_.erase(found);
  return receive;
}

absl::Status OfiInbox::Keep(uint64_t tag, OfiArrival arrival) {
  // Early messages by their budget, requests by the sender's limit of pending sends.
  if (kept_ >= 2 * limits_.max_pending_per_peer) {
    return absl::ResourceExhaustedError(
        absl::StrCat("it sent more than ", kept_, " messages before their receives"));
  }
  ++kept_;
  arrivals_[tag].push_back(std::move(arrival));
  return absl::OkStatus();
}

void OfiInbox::Finished(const PendingReceive& receive) {
  --unfinished_;
  due_ -= receive.standing ? 0 : 1;
}

}  // namespace muster
