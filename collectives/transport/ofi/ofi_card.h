// What the ranks of a libfabric mesh tell each other before they talk: a card over each connection
// that the TCP handshake has vouched for. Stateless, thread-safe; decoding takes anything the
// network may deliver.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_CARD_H_
#define MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_CARD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/ids.h"

namespace muster {

inline constexpr uint32_t kMaxOfiCardBytes = 64 << 10;
inline constexpr uint32_t kMaxOfiRails = 64;

struct OfiCard {
  // Of the sender. Checked against the view, although the handshake did so: an endpoint must never
  // be taken for another's.
  Epoch epoch = 0;
  Rank rank = -1;
  Incarnation incarnation;
  uint32_t cookie = 0;  // that packets to this rank must carry
  uint32_t window = 0;  // receive buffers posted for the peer
  uint32_t packet_bytes = 0;
  int64_t early_bytes = 0;  // TransportLimits::eager_bytes
  int64_t budget = 0;       // TransportLimits::unexpected_bytes
  int64_t overhead = 0;     // of each early message, in the budget
  bool takes_immediates = false;
  std::string provider;
  std::vector<std::string> addresses;  // opaque, one for each rail
  bool operator==(const OfiCard&) const = default;
};

std::string EncodeOfiCard(const OfiCard& card);
// INVALID_ARGUMENT for what is no card. `bytes`: without the length in front.
absl::StatusOr<OfiCard> DecodeOfiCard(absl::string_view bytes);

// Sends `card` over each of the sockets (non-blocking; -1 for none) and takes one from each. The
// result is by socket; empty cards for none. DEADLINE_EXCEEDED and UNAVAILABLE carry the rank (the
// socket's index) as culprit.
absl::StatusOr<std::vector<OfiCard>> ExchangeOfiCards(const std::vector<int>& sockets,
                                                      const OfiCard& card, absl::Time deadline);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_CARD_H_
