// An in-process mesh that does all that the transport contract leaves open, from a seed: messages
// overtake each other, arrive long after their senders were told that they may reuse the memory,
// wait for a "try again" before they leave, and reach consumers in pieces of odd sizes. Nothing is
// duplicated, and messages of one tag keep their order.
//
// A killed rank stops in the middle: some of what it had sent never arrives, no completion of it is
// ever reported, and its peers learn of its death only some passes later, as from a control plane.
//
// What is decided depends on the seed alone; threads still interleave as they like.
#ifndef MUSTER_TESTS_COLLECTIVES_TRANSPORT_HOSTILE_TRANSPORT_H_
#define MUSTER_TESTS_COLLECTIVES_TRANSPORT_HOSTILE_TRANSPORT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/transport/transport.h"

namespace muster {

class HostileHub;  // what the ends share

struct HostileMesh {
  std::shared_ptr<HostileHub> hub;
  std::vector<std::unique_ptr<Transport>> ends;  // by rank; may outlive each other and this
};

HostileMesh MakeHostileMesh(int world_size, uint64_t seed, TransportLimits limits = {});

// Stops the rank for good, as SIGKILL would. From any thread. Its end must not be driven any more
// but for a Poll that is going on, which returns UNAVAILABLE.
void KillRank(HostileHub& hub, Rank rank);

}  // namespace muster

#endif  // MUSTER_TESTS_COLLECTIVES_TRANSPORT_HOSTILE_TRANSPORT_H_
