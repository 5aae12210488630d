#include "collectives/transport/shm/introductions.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "collectives/transport/culprit.h"
#include "collectives/transport/wire.h"

namespace muster {
namespace {

constexpr size_t kLocationBytes = 44;

absl::Status Send(const TcpPeerSockets& peer, Rank rank, absl::Span<const std::byte> bytes) {
  // A fresh connection's buffer takes this whole.
  const ssize_t sent = send(peer.control.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (sent == static_cast<ssize_t>(bytes.size())) return absl::OkStatus();
  return WithCulprit(ErrnoStatus(errno, absl::StrCat("introducing myself to rank ", rank)), rank);
}

absl::Status Receive(const TcpPeerSockets& peer, Rank rank, absl::Span<std::byte> bytes,
                     absl::Time deadline) {
  while (!bytes.empty()) {
    pollfd readable = {peer.control.get(), POLLIN, 0};
    if (poll(&readable, 1, PollTimeoutMs(deadline)) == 0) {
      return WithCulprit(
          absl::DeadlineExceededError(absl::StrCat("rank ", rank, " did not introduce itself")),
          rank);
    }
    const ssize_t got = recv(peer.control.get(), bytes.data(), bytes.size(), 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) {
      return WithCulprit(
          absl::UnavailableError(absl::StrCat("rank ", rank, " is gone: it hung up early")), rank);
    }
    bytes.remove_prefix(static_cast<size_t>(got));
  }
  return absl::OkStatus();
}

// `bytes[r]` goes to rank r, and what comes from it takes its place.
template <size_t size>
absl::Status Exchange(const std::vector<TcpPeerSockets>& sockets, Rank rank,
                      std::vector<std::array<std::byte, size>>& bytes, absl::Time deadline) {
  for (Rank r = 0; r < static_cast<Rank>(sockets.size()); ++r) {
    if (r != rank) MUSTER_RETURN_IF_ERROR(Send(sockets[r], r, bytes[r]));
  }
  for (Rank r = 0; r < static_cast<Rank>(sockets.size()); ++r) {
    if (r == rank) continue;
    MUSTER_RETURN_IF_ERROR(Receive(sockets[r], r, absl::MakeSpan(bytes[r]), deadline));
  }
  return absl::OkStatus();
}

std::array<std::byte, kLocationBytes> Encode(const ShmGroup::Location& location) {
  std::array<std::byte, kLocationBytes> bytes;
  std::byte* out = bytes.data();
  out = PutInteger(out, location.nonce);
  out = PutInteger(out, location.pid);
  out = PutInteger(out, location.capacity);
  out = PutInteger(out, location.area);
  out = PutInteger(out, location.address);
  PutInteger(out, location.fd);
  return bytes;
}

ShmGroup::Location Decode(const std::array<std::byte, kLocationBytes>& bytes) {
  ShmGroup::Location location;
  const std::byte* in = bytes.data();
  in = GetInteger(in, &location.nonce);
  in = GetInteger(in, &location.pid);
  in = GetInteger(in, &location.capacity);
  in = GetInteger(in, &location.area);
  in = GetInteger(in, &location.address);
  GetInteger(in, &location.fd);
  return location;
}

}  // namespace

absl::StatusOr<std::vector<ShmGroup::Location>> ExchangeLocations(
    const std::vector<TcpPeerSockets>& sockets, Rank rank, const ShmGroup::Location& mine,
    absl::Time deadline) {
  std::vector<std::array<std::byte, kLocationBytes>> bytes(sockets.size(), Encode(mine));
  MUSTER_RETURN_IF_ERROR(Exchange(sockets, rank, bytes, deadline));
  std::vector<ShmGroup::Location> locations;
  for (const auto& location : bytes) locations.push_back(Decode(location));
  return locations;
}

absl::StatusOr<std::vector<uint64_t>> ExchangeNumbers(const std::vector<TcpPeerSockets>& sockets,
                                                      Rank rank, uint64_t mine,
                                                      absl::Time deadline) {
  return ExchangeNumbers(sockets, rank, std::vector<uint64_t>(sockets.size(), mine), deadline);
}

absl::StatusOr<std::vector<uint64_t>> ExchangeNumbers(const std::vector<TcpPeerSockets>& sockets,
                                                      Rank rank, const std::vector<uint64_t>& mine,
                                                      absl::Time deadline) {
  std::vector<std::array<std::byte, sizeof(uint64_t)>> bytes(sockets.size());
  for (size_t r = 0; r < mine.size(); ++r) PutInteger(bytes[r].data(), mine[r]);
  MUSTER_RETURN_IF_ERROR(Exchange(sockets, rank, bytes, deadline));
  std::vector<uint64_t> numbers(sockets.size());
  for (size_t r = 0; r < bytes.size(); ++r) GetInteger(bytes[r].data(), &numbers[r]);
  return numbers;
}

}  // namespace muster
