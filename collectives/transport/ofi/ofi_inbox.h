// Matches one peer's announced and early messages with the receives posted for them. Messages of
// one tag are served in the order in which they were sent. One thread at a time.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_INBOX_H_
#define MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_INBOX_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "collectives/transport/receive_table.h"

namespace muster {

// A message whose receive is not posted yet: its bytes, or a request to fetch it.
struct OfiArrival {
  int64_t length = 0;
  std::unique_ptr<std::byte[]> bytes;  // aligned for every element type; null: a request
  absl::Span<const std::byte> span() const {
    return absl::MakeConstSpan(bytes.get(), static_cast<size_t>(length));
  }
};

class OfiInbox {
 public:
  explicit OfiInbox(const TransportLimits& limits) : limits_(limits) {}

  // What has arrived for the receive, or nothing, and then it is awaited from now on.
  std::optional<OfiArrival> Post(const PendingReceive& receive);
  // The receive that a message of that tag is for, taken out; nothing where it is too early.
  std::optional<PendingReceive> Take(uint64_t tag);
  // Keeps a message that Take had no receive for. RESOURCE_EXHAUSTED: more than a peer may send.
  absl::Status Keep(uint64_t tag, OfiArrival arrival);

  // Messages that the peer owes: receives posted and not finished, standing ones only as expected.
  int due() const { return due_; }
  void Expect(int delta) { due_ += delta; }
  // A receive that was posted has been served.
  void Finished(const PendingReceive& receive);

 private:
  const TransportLimits limits_;
  int unfinished_ = 0;  // receives
  int due_ = 0;
  int kept_ = 0;  // arrivals
  absl::flat_hash_map<uint64_t, PendingReceive> awaited_;
  absl::flat_hash_map<uint64_t, std::deque<OfiArrival>> arrivals_;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_INBOX_H_
