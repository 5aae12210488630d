#include "collectives/transport/ofi/ofi_card.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "collectives/transport/culprit.h"
#include "collectives/transport/socket.h"
#include "collectives/transport/wire.h"

namespace muster {
namespace {

constexpr uint64_t kMagic = 0x64726163'69666f6dULL;  // "mofcard"
constexpr uint32_t kVersion = 1;

template <typename T>
void Append(std::string* out, T value) {
  std::byte bytes[sizeof(T)];
  PutInteger(bytes, value);
  out->append(reinterpret_cast<const char*>(bytes), sizeof(T));
}

void AppendText(std::string* out, const std::string& text) {
  Append(out, static_cast<uint32_t>(text.size()));
  out->append(text);
}

// Takes integers and texts off the front; remembers whether there was enough.
class Reader {
 public:
  explicit Reader(absl::string_view bytes) : bytes_(bytes) {}
  template <typename T>
  T Take() {
    T value = {};
    if (bytes_.size() < sizeof(T)) {
      whole_ = false;
      return value;
    }
    GetInteger(reinterpret_cast<const std::byte*>(bytes_.data()), &value);
    bytes_.remove_prefix(sizeof(T));
    return value;
  }
  std::string TakeText() {
    const auto length = Take<uint32_t>();
    if (length > bytes_.size()) {
      whole_ = false;
      return "";
    }
    const std::string text(bytes_.substr(0, length));
    bytes_.remove_prefix(length);
    return text;
  }
  bool whole() const { return whole_; }
  bool at_end() const { return bytes_.empty(); }

 private:
  absl::string_view bytes_;
  bool whole_ = true;
};

// One socket's part of an exchange.
struct Exchange {
  size_t sent = 0;
  std::string received;
  bool done = false;
};

}  // namespace

std::string EncodeOfiCard(const OfiCard& card) {
  std::string out;
  Append(&out, kMagic);
  Append(&out, kVersion);
  Append(&out, card.epoch);
  Append(&out, card.rank);
  Append(&out, card.incarnation.value);
  Append(&out, card.cookie);
  Append(&out, card.window);
  Append(&out, card.packet_bytes);
  Append(&out, card.early_bytes);
  Append(&out, card.budget);
  Append(&out, card.overhead);
  Append(&out, static_cast<uint8_t>(card.takes_immediates));
  AppendText(&out, card.provider);
  Append(&out, static_cast<uint32_t>(card.addresses.size()));
  for (const std::string& address : card.addresses) AppendText(&out, address);
  Append(&out, StableHash(out));
  return out;
}

absl::StatusOr<OfiCard> DecodeOfiCard(absl::string_view bytes) {
  Reader reader(bytes);
  if (reader.Take<uint64_t>() != kMagic) return absl::InvalidArgumentError("not a card");
  if (const auto version = reader.Take<uint32_t>(); version != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("a card of version ", version, " where ", kVersion, " was expected"));
  }
  OfiCard card;
  card.epoch = reader.Take<Epoch>();
  card.rank = reader.Take<Rank>();
  card.incarnation.value = reader.Take<uint64_t>();
  card.cookie = reader.Take<uint32_t>();
  card.window = reader.Take<uint32_t>();
  card.packet_bytes = reader.Take<uint32_t>();
  card.early_bytes = reader.Take<int64_t>();
  card.budget = reader.Take<int64_t>();
  card.overhead = reader.Take<int64_t>();
  card.takes_immediates = reader.Take<uint8_t>() != 0;
  card.provider = reader.TakeText();
  const auto rails = reader.Take<uint32_t>();
  if (rails < 1 || rails > kMaxOfiRails) {
    return absl::InvalidArgumentError(absl::StrCat("a card with ", rails, " rails"));
  }
  for (uint32_t r = 0; r < rails; ++r) card.addresses.push_back(reader.TakeText());
  const auto hash = reader.Take<uint64_t>();
  if (!reader.whole() || !reader.at_end() ||
      hash != StableHash(bytes.substr(0, bytes.size() - sizeof(hash)))) {
    return absl::InvalidArgumentError("a damaged card");
  }
  return card;
}

absl::StatusOr<std::vector<OfiCard>> ExchangeOfiCards(const std::vector<int>& sockets,
                                                      const OfiCard& card, absl::Time deadline) {
  const std::string body = EncodeOfiCard(card);
  std::string message;
  Append(&message, static_cast<uint32_t>(body.size()));
  message += body;
  std::vector<OfiCard> cards(sockets.size());
  std::vector<Exchange> exchanges(sockets.size());
  const auto blame = [](absl::Status status, size_t rank) {
    return WithCulprit(
        Annotate(status, absl::StrCat("exchanging endpoint addresses with rank ", rank)),
        static_cast<Rank>(rank));
  };
  // Sends and receives what goes without blocking.
  const auto advance = [&](size_t r) -> absl::Status {
    Exchange& exchange = exchanges[r];
    while (exchange.sent < message.size()) {
      const ssize_t sent = send(sockets[r], message.data() + exchange.sent,
                                message.size() - exchange.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) break;
      if (sent < 0) return ErrnoStatus(errno, "sending");
      exchange.sent += static_cast<size_t>(sent);
    }
    while (true) {
      size_t wanted = sizeof(uint32_t);
      if (exchange.received.size() >= wanted) {
        const auto length = Reader(exchange.received).Take<uint32_t>();
        if (length > kMaxOfiCardBytes) {
          return absl::InvalidArgumentError(absl::StrCat("a card of ", length, " bytes"));
        }
        wanted += length;
        if (exchange.received.size() == wanted) break;
      }
      char buffer[4096];
      const ssize_t got =
          recv(sockets[r], buffer, std::min(sizeof(buffer), wanted - exchange.received.size()),
               MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        return absl::OkStatus();
      }
      if (got < 0) return ErrnoStatus(errno, "receiving");
      if (got == 0) return absl::UnavailableError("it hung up (its own error says why)");
      exchange.received.append(buffer, static_cast<size_t>(got));
    }
    if (exchange.sent < message.size()) return absl::OkStatus();
    auto decoded = DecodeOfiCard(absl::string_view(exchange.received).substr(sizeof(uint32_t)));
    if (!decoded.ok()) return decoded.status();
    cards[r] = *std::move(decoded);
    exchange.done = true;
    return absl::OkStatus();
  };
  while (true) {
    std::vector<pollfd> waiting;
    for (size_t r = 0; r < sockets.size(); ++r) {
      if (sockets[r] < 0 || exchanges[r].done) continue;
      if (const absl::Status status = advance(r); !status.ok()) return blame(status, r);
      if (exchanges[r].done) continue;
      const bool sending = exchanges[r].sent < message.size();
      waiting.push_back({sockets[r], static_cast<short>(POLLIN | (sending ? POLLOUT : 0)), 0});
      if (absl::Now() >= deadline) {
        return blame(absl::DeadlineExceededError("no answer in time"), r);
      }
    }
    if (waiting.empty()) return cards;
    poll(waiting.data(), waiting.size(), PollTimeoutMs(deadline));
  }
}

}  // namespace muster
