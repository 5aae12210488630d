// What ranks that are being connected tell each other about their memory, over control connections
// that carry nothing else yet.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_SHM_INTRODUCTIONS_H_
#define MUSTER_COLLECTIVES_TRANSPORT_SHM_INTRODUCTIONS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "collectives/transport/shm/shm_group.h"
#include "collectives/transport/tcp_mesh.h"

namespace muster {

// Sends each rank `mine` and returns theirs, by rank; the own element is `mine`. All ranks call it
// as often as each other. Errors name the rank, which is the culprit: UNAVAILABLE if it is gone,
// DEADLINE_EXCEEDED if it says nothing.
absl::StatusOr<std::vector<ShmGroup::Location>> ExchangeLocations(
    const std::vector<TcpPeerSockets>& sockets, Rank rank, const ShmGroup::Location& mine,
    absl::Time deadline);
// The same with numbers.
absl::StatusOr<std::vector<uint64_t>> ExchangeNumbers(const std::vector<TcpPeerSockets>& sockets,
                                                      Rank rank, uint64_t mine,
                                                      absl::Time deadline);
// The same with a number for each rank; returns what each said to this one.
absl::StatusOr<std::vector<uint64_t>> ExchangeNumbers(const std::vector<TcpPeerSockets>& sockets,
                                                      Rank rank, const std::vector<uint64_t>& mine,
                                                      absl::Time deadline);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_SHM_INTRODUCTIONS_H_
