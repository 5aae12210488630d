// Limits and timings that both ends of a connection must agree on.
#ifndef MUSTER_PROTO_RPC_LIMITS_H_
#define MUSTER_PROTO_RPC_LIMITS_H_

namespace muster {

// Largest message either side sends or accepts. What can grow beyond it is streamed in chunks.
inline constexpr int kMaxMessageBytes = 4 << 20;

// A connection without traffic is probed this often, and given up when no answer comes in time. A
// client that probes more often than the server's least interval would be cut off ("too many
// pings"), so the interval leaves room for jitter.
inline constexpr int kKeepaliveIntervalMs = 5'000;
inline constexpr int kKeepaliveTimeoutMs = 5'000;
inline constexpr int kKeepaliveLeastIntervalMs = 2'500;

}  // namespace muster

#endif  // MUSTER_PROTO_RPC_LIMITS_H_
