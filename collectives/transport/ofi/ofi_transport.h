// A mesh over libfabric reliable datagrams (FI_EP_RDM): AWS's EFA, and the tcp, net, tcp;ofi_rxm
// and shm providers that stand in for it elsewhere. Behaves as transport.h says.
//
// How it works, and why, given what EFA guarantees:
// - Ranks meet over the TCP handshake (tcp_handshake.h), which fences epoch and incarnation, and
//   give each other their opaque endpoint addresses there (ofi_card.h). Endpoints and addresses
//   live for one epoch, so a restarted process is never reached by an old address. The control
//   connection stays open: a killed peer is known when the kernel closes it, and goodbye and abort
//   travel over it. A fabric may never complete a receive from a dead peer.
// - Messages of up to about a packet go in one packet. They are copied, so their source is free at
//   once; the receiver's budget for early ones (TransportLimits) is known to the sender, who asks
//   first when it is spent. Of a larger one the receiver grants registered memory once the receive
//   is posted, the sender writes there (RMA), and immediate data of 4 bytes says which piece has
//   arrived. A grant goes out with the post, so that a message that comes later than its receive
//   takes one way and not three; where it is the other way round the sender asks (request), since
//   grants ahead are limited. Where the provider has no immediate data, a packet says what was
//   written after a write with FI_DELIVERY_COMPLETE. Tagged receives would leave the buffering of
//   early messages to the provider, without a bound.
// - No order is asked for. Packets of a pair are numbered and put in order, within the window;
//   pieces arrive in any order, and before the packets that were sent before them.
// - Nothing can overrun. Each packet needs a receive buffer that its target has posted (credits),
//   so a receiver is never "not ready"; each write needs a grant, of which a receiver has a fixed
//   number; completion queues have room for all of these.
// - A source is reported as done on the receiver's word (a `done` packet) and when the provider has
//   completed all writes from it, not on a completion level, which providers take loosely.
// - Progress is manual and takes a thread here only while nobody drives: wait objects do not exist
//   on EFA, and elsewhere cost a thread that competes with the driver. A waiting Poll yields, then
//   sleeps for up to half a millisecond at a time.
// - Memory is registered for the length of a transfer, or once and for all by RegisterMemory. There
//   is no cache of guessed registrations: memory that was freed and mapped again would silently
//   keep the old pages.
// - Several rails (one domain and endpoint each) carry pieces of large messages by turns.
//
// Forking after Connect on EFA: kernels from 5.13 copy pinned pages for the child; on older ones
// set FI_EFA_FORK_SAFE=1 (or RDMAV_FORK_SAFE=1) in the environment. Endpoints do not survive a
// fork.
//
// Host memory only (no FI_HMEM). Thread-safety as transport.h says; RegisterMemory and
// DeregisterMemory may be called from any thread.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_TRANSPORT_H_
#define MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "collectives/transport/mesh_transport.h"
#include "collectives/transport/tcp_transport.h"

namespace muster {

struct OfiOptions {
  // "efa", "tcp", "net", "tcp;ofi_rxm", "shm" (one host only), as libfabric names them, or "auto":
  // the first of efa, tcp, net, tcp;ofi_rxm that is there. Equal on all ranks (checked).
  std::string provider = "auto";
  // One rail each: an address or interface name, or for efa a domain ("rdmap16s27-rdm"). Empty: all
  // EFA devices, those nearest to `near_device` first, or the interface of the address that the
  // listener advertises. As many on all ranks.
  std::vector<std::string> rails;
  // PCI address ("0000:10:1c.0") of the GPU whose data moves. Empty: what counts is the NUMA node
  // that this process is bound to, if it is.
  std::string near_device;
  // Where `rails` is empty: no more than this many, the nearest ones. 0: all. Equal on all ranks.
  int max_rails = 0;
  // Of a packet, header included; messages that fit go in one. 0: about an MTU on efa, elsewhere
  // what holds TransportLimits::eager_bytes. Fewer where buffers for all peers would take over 256
  // MiB.
  int packet_bytes = 0;
  // Receive buffers posted for each peer, 8 or more.
  int packets_per_peer = 32;
  // Say that a write has arrived by immediate data, where the provider carries 4 bytes of it.
  bool use_immediate_data = true;
  // The longest that Close(OkStatus()) waits for peers to take what was completed.
  absl::Duration flush_timeout = absl::Seconds(1);
};

class OfiTransport : public MeshTransport {
 public:
  // Forms the mesh, blocking; the spec's TCP options apply to the handshake and control
  // connections, its limits to messages. Errors as TcpTransport::Connect's, and
  //   NOT_FOUND            no such provider, device or rail; names what is there instead
  //   RESOURCE_EXHAUSTED   the limit of locked memory is too low, or the provider's queues are
  //   FAILED_PRECONDITION  ranks chose different providers, or numbers of rails
  static absl::StatusOr<std::unique_ptr<OfiTransport>> Connect(TcpListener& listener, MeshSpec spec,
                                                               OfiOptions options,
                                                               absl::Time deadline);

  // What was chosen and why, in one line: "net (libfabric 1.17) over lo; auto: efa: no device,
  // ...".
  virtual const std::string& explanation() const = 0;

  // Keeps [memory] registered until DeregisterMemory with the same memory, or Close. Transfers
  // within it register nothing. ALREADY_EXISTS where it overlaps registered memory. Requires for
  // Deregister: no transfer of it pending; that it is mapped until then.
  virtual absl::Status RegisterMemory(absl::Span<std::byte> memory) = 0;
  virtual absl::Status DeregisterMemory(absl::Span<std::byte> memory) = 0;
};

// Whether `limit_bytes` of locked memory (RLIMIT_MEMLOCK; the greatest value means no limit)
// suffice for the `needed_bytes` that a device pins. RESOURCE_EXHAUSTED says how to raise it.
absl::Status CheckLockedMemory(uint64_t needed_bytes, uint64_t limit_bytes);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_TRANSPORT_H_
