#include "collectives/transport/ofi/ofi_transport.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "collectives/transport/culprit.h"
#include "collectives/transport/ofi/ofi_card.h"
#include "collectives/transport/ofi/ofi_mesh.h"
#include "collectives/transport/ofi/ofi_provider.h"
#include "collectives/transport/tcp_mesh.h"

namespace muster {
namespace {

constexpr int64_t kMaxReceiveMemory = 256 << 20;
constexpr int64_t kMinPacketBytes = 1024;
constexpr int64_t kPacketAlignment = 64;
constexpr int64_t kEfaPacketBytes = 8 << 10;
constexpr int kSendBuffers = 64;
// An early message takes at least this much of the budget.
constexpr int64_t kMinOverhead = 64;

// Forms one mesh; used by one thread.
class Builder {
 public:
  Builder(TcpListener& listener, MeshSpec spec, OfiOptions options, absl::Time deadline)
      : listener_(listener),
        options_(std::move(options)),
        deadline_(deadline),
        peers_(static_cast<int>(spec.members.size()) - 1) {
    parts_.spec = std::move(spec);
    parts_.spec.options.channels = 1;
    parts_.flush_timeout = options_.flush_timeout;
  }

  absl::StatusOr<std::unique_ptr<OfiTransport>> Run() {
    MUSTER_RETURN_IF_ERROR(Validate());
    const std::string& address = parts_.spec.members[parts_.spec.rank].address;
    MUSTER_ASSIGN_OR_RETURN(const SocketAddress own, ParseAddress(address));
    MUSTER_ASSIGN_OR_RETURN(choice_, ChooseOfiProvider(options_, own.Host()));
    parts_.explanation = choice_.explanation;
    parts_.links.resize(parts_.spec.members.size());
    parts_.targets.resize(parts_.spec.members.size());
    if (peers_ > 0) MUSTER_RETURN_IF_ERROR(OpenRails());
    MUSTER_ASSIGN_OR_RETURN(std::vector<TcpPeerSockets> sockets,
                            ConnectMeshSockets(listener_, parts_.spec, deadline_));
    std::vector<int> exchange;
    for (TcpPeerSockets& peer : sockets) {
      parts_.control.push_back(std::move(peer.control));
      exchange.push_back(peer.data.empty() ? -1 : peer.data[0].get());
    }
    exchange[static_cast<size_t>(parts_.spec.rank)] = -1;
    const OfiCard card = OwnCard();
    MUSTER_ASSIGN_OR_RETURN(const std::vector<OfiCard> cards,
                            ExchangeOfiCards(exchange, card, deadline_));
    for (Rank r = 0; r < static_cast<Rank>(cards.size()); ++r) {
      if (r != parts_.spec.rank) MUSTER_RETURN_IF_ERROR(Admit(r, cards[r], card));
    }
    if (!parts_.connections.empty()) {
      absl::StrAppend(&parts_.explanation, "; its connections within this host use reno");
    }
    return OfiMesh::Create(std::move(parts_));
  }

 private:
  absl::Status Validate() const {
    const MeshSpec& spec = parts_.spec;
    if (spec.rank < 0 || spec.rank >= static_cast<Rank>(spec.members.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("mesh spec: rank ", spec.rank, " of ", spec.members.size()));
    }
    if (options_.packets_per_peer < static_cast<int>(kOfiMinWindow) ||
        (options_.packet_bytes != 0 && options_.packet_bytes < kMinPacketBytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("libfabric options: ", options_.packets_per_peer, " packets per peer of ",
                       options_.packet_bytes, " bytes; at least ", kOfiMinWindow, " of ",
                       kMinPacketBytes, " are needed"));
    }
    return absl::OkStatus();
  }

  absl::Status OpenRails() {
    const int receives = peers_ * options_.packets_per_peer;
    for (const OfiInfo& info : choice_.rails) {
      OfiRail::Sizes sizes;
      sizes.receives = parts_.rails.empty() ? receives : 0;  // Packets take the first rail.
      sizes.immediates = OfiReceiver::kSlots;
      sizes.peers = peers_;
      auto rail = OfiRail::Open(info.get(), sizes);
      if (!rail.ok()) return Annotate(rail.status(), choice_.explanation);
      parts_.rails.push_back(*std::move(rail));
    }
    OfiRail& first = *parts_.rails[0];
    const int64_t most = std::min<int64_t>(kMaxReceiveMemory / receives, first.max_message_bytes());
    const int64_t eager = parts_.spec.options.limits.eager_bytes + kPacketAlignment;
    const int64_t suits =
        choice_.provider == "efa" ? kEfaPacketBytes : std::max(eager, kMinPacketBytes);
    const int64_t wanted = options_.packet_bytes != 0 ? options_.packet_bytes : suits;
    packet_bytes_ = std::min(wanted, most) / kPacketAlignment * kPacketAlignment;
    if (packet_bytes_ < kMinPacketBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat(choice_.explanation, ": ", receives, " receive buffers of ", kMinPacketBytes,
                       " bytes are more than ", kMaxReceiveMemory, "; lower packets_per_peer"));
    }
    if (first.pins_memory()) {
      rlimit limit = {};
      getrlimit(RLIMIT_MEMLOCK, &limit);
      const auto needed = static_cast<uint64_t>(packet_bytes_ * (receives + kSendBuffers)) +
                          OfiReceiver::kStagingBytes * OfiReceiver::kStagingPieces;
      MUSTER_RETURN_IF_ERROR(CheckLockedMemory(
          needed, limit.rlim_cur == RLIM_INFINITY ? ~uint64_t{0} : uint64_t{limit.rlim_cur}));
    }
    parts_.buffers = std::make_unique<OfiPacketBuffers>(&first, static_cast<size_t>(packet_bytes_),
                                                        receives, kSendBuffers);
    // Before any peer knows the address: nobody finds the endpoint without receives.
    MUSTER_ASSIGN_OR_RETURN(const int posted, parts_.buffers->PostAll());
    window_ = static_cast<uint32_t>(posted / peers_);
    if (window_ < kOfiMinWindow) {
      return absl::ResourceExhaustedError(
          absl::StrCat(choice_.explanation, ": the provider took ", posted, " receives; ", peers_,
                       " peers need at least ", kOfiMinWindow, " each"));
    }
    return absl::OkStatus();
  }

  OfiCard OwnCard() {
    const MeshSpec& spec = parts_.spec;
    const TransportLimits& limits = spec.options.limits;
    OfiCard card;
    card.epoch = spec.epoch;
    card.rank = spec.rank;
    card.incarnation = spec.members[spec.rank].incarnation;
    parts_.cookie = static_cast<uint32_t>(
        StableHash(absl::StrCat(spec.token, "/", spec.epoch, "/", card.incarnation.ToString())));
    card.cookie = parts_.cookie;
    card.window = window_;
    card.packet_bytes = static_cast<uint32_t>(packet_bytes_);
    card.early_bytes = limits.eager_bytes;
    card.budget = limits.unexpected_bytes;
    // So many fit at most that the number of early messages is bounded, too.
    card.overhead = std::max<int64_t>(
        kMinOverhead, limits.unexpected_bytes / std::max(limits.max_pending_per_peer, 1));
    card.takes_immediates = options_.use_immediate_data;
    for (const auto& rail : parts_.rails) {
      card.takes_immediates = card.takes_immediates && rail->has_immediates();
      card.addresses.push_back(rail->address());
    }
    card.provider = choice_.provider;
    return card;
  }

  absl::Status Admit(Rank r, const OfiCard& theirs, const OfiCard& mine) {
    const MeshMember& member = parts_.spec.members[r];
    const auto refuse = [r](const auto&... parts) {
      return WithCulprit(absl::FailedPreconditionError(absl::StrCat("rank ", r, " ", parts...)), r);
    };
    if (theirs.epoch != mine.epoch || theirs.rank != r ||
        theirs.incarnation != member.incarnation) {
      return refuse("gave the address of rank ", theirs.rank, ", incarnation ",
                    theirs.incarnation.ToString(), ", epoch ", theirs.epoch, "; expected ",
                    member.incarnation.ToString(), ", epoch ", mine.epoch);
    }
    if (theirs.provider != mine.provider || theirs.addresses.size() != mine.addresses.size()) {
      return refuse("uses ", theirs.addresses.size(), " rails of libfabric provider ",
                    theirs.provider, ", but rank ", mine.rank, " uses ", mine.addresses.size(),
                    " of ", mine.provider, "; choose the same on all ranks");
    }
    if (theirs.window < kOfiMinWindow || theirs.packet_bytes < kMinPacketBytes ||
        theirs.budget < 0 || theirs.overhead < kMinOverhead) {
      return refuse("gave impossible limits: ", theirs.window, " packets of ", theirs.packet_bytes,
                    " bytes");
    }
    OfiWriteTarget& target = parts_.targets[r];
    target.with_immediates = theirs.takes_immediates && mine.takes_immediates;
    for (size_t i = 0; i < parts_.rails.size(); ++i) {
      auto address = parts_.rails[i]->Insert(theirs.addresses[i]);
      if (!address.ok()) {
        const absl::Status status =
            Annotate(address.status(), absl::StrCat("rank ", r, " (", member.address,
                                                    "), where all ranks must be at IPv4 or ",
                                                    "all at IPv6 addresses for ", mine.provider));
        return WithCulprit(status, r);
      }
      target.addresses.push_back(*address);
    }
    if (parts_.rails[0]->at_ip_address()) {
      parts_.connections.Add(r, mine.addresses[0], theirs.addresses[0]);
    }
    OfiPeerLimits limits;
    limits.cookie = theirs.cookie;
    limits.window = theirs.window;
    limits.packet_bytes =
        static_cast<size_t>(std::min<int64_t>(theirs.packet_bytes, packet_bytes_));
    limits.early_bytes = theirs.early_bytes;
    limits.budget = theirs.budget;
    limits.overhead = theirs.overhead;
    parts_.links[r] = std::make_unique<OfiPeerLink>(parts_.spec.rank, r, target.addresses[0],
                                                    limits, window_, mine.overhead);
    return absl::OkStatus();
  }

  TcpListener& listener_;
  const OfiOptions options_;
  const absl::Time deadline_;
  const int peers_;
  OfiChoice choice_;
  OfiMeshParts parts_;
  int64_t packet_bytes_ = 0;
  uint32_t window_ = 0;
};

}  // namespace

absl::Status CheckLockedMemory(uint64_t needed_bytes, uint64_t limit_bytes) {
  if (limit_bytes >= needed_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the limit of locked memory is ", limit_bytes >> 10,
                   " KiB, but the device must pin ", (needed_bytes + 1023) >> 10,
                   " KiB; raise it (ulimit -l, memlock in /etc/security/limits.conf, LimitMEMLOCK= "
                   "of a service)"));
}

absl::StatusOr<std::unique_ptr<OfiTransport>> OfiTransport::Connect(TcpListener& listener,
                                                                    MeshSpec spec,
                                                                    OfiOptions options,
                                                                    absl::Time deadline) {
  return Builder(listener, std::move(spec), std::move(options), deadline).Run();
}

}  // namespace muster
