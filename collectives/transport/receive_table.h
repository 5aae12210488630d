// Matches one peer's incoming messages with the receives posted for them, and keeps the few small
// messages that came too early. Driven by one thread.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_RECEIVE_TABLE_H_
#define MUSTER_COLLECTIVES_TRANSPORT_RECEIVE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "collectives/transport/transport.h"

namespace muster {

// A posted receive: into `destination`, or through `consumer`.
struct PendingReceive {
  uint64_t tag = 0;
  int64_t length = 0;
  std::byte* destination = nullptr;
  PieceConsumer* consumer = nullptr;
  int element_bytes = 1;
  bool standing = false;
  uint64_t token = 0;

  static PendingReceive Into(uint64_t tag, absl::Span<std::byte> destination, bool standing,
                             uint64_t token) {
    return {.tag = tag,
            .length = static_cast<int64_t>(destination.size()),
            .destination = destination.data(),
            .standing = standing,
            .token = token};
  }
  static PendingReceive Through(uint64_t tag, int64_t length, int element_bytes,
                                PieceConsumer* consumer, uint64_t token) {
    return {.tag = tag,
            .length = length,
            .consumer = consumer,
            .element_bytes = element_bytes,
            .token = token};
  }
};

class ReceiveTable {
 public:
  explicit ReceiveTable(const TransportLimits& limits) : limits_(limits) {}

  // True: the message had come already and has been delivered.  Otherwise it is awaited from now
  // on. INVALID_ARGUMENT: it had come with another length.
  absl::StatusOr<bool> Post(const PendingReceive& receive);

  // The receive posted for `tag`, taken out.
  std::optional<PendingReceive> Take(uint64_t tag);

  // Room for an early message, or null when it must be held back. Deliver(tag) once it is complete.
  std::byte* Reserve(uint64_t tag, int64_t length);
  // The early message is complete. True, with *token set, when its receive had been posted
  // meanwhile and has been served.
  absl::StatusOr<bool> Deliver(uint64_t tag, uint64_t* token);

  // Taken in early so far (complete or not), in bytes and in messages.
  int64_t early_bytes() const { return early_bytes_; }
  // Receives the peer owes us.
  int due() const { return due_; }
  // Messages for standing receives that the peer owes as well.
  void Expect(int delta) { due_ += delta; }
  // A receive was finished by the connection that took it.
  void Finished(const PendingReceive& receive) { due_ -= receive.standing ? 0 : 1; }

 private:
  struct Early {
    std::unique_ptr<std::byte[]> bytes;  // aligned for every element type
    int64_t length = 0;
    bool complete = false;
  };
  absl::Status Serve(const PendingReceive& receive, const Early& early);

  const TransportLimits limits_;
  absl::flat_hash_map<uint64_t, PendingReceive> pending_;
  absl::flat_hash_map<uint64_t, Early> early_;
  int64_t early_bytes_ = 0;
  int due_ = 0;
};

// The error of a message of another length than its receive.
absl::Status LengthMismatch(uint64_t tag, int64_t expected, int64_t got);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_RECEIVE_TABLE_H_
