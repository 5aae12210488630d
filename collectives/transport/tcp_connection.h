// One data connection of a TCP mesh: a queue of messages to send, and the parser of what arrives.
//
// Receiving. Bytes go by readv straight to where they belong: the rest of a message into its
// destination (or, for a consumer, into a staging buffer that stays in the cache), what follows it
// into a small look-ahead buffer, from which headers and small messages are taken. So a large
// message costs one copy and a small one, with its header, one system call.
//
// Not thread-safe. Functions return UNAVAILABLE when the connection is broken; the caller names the
// peer.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_TCP_CONNECTION_H_
#define MUSTER_COLLECTIVES_TRANSPORT_TCP_CONNECTION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "collectives/transport/receive_table.h"
#include "collectives/transport/socket.h"
#include "collectives/transport/tcp_frame.h"

namespace muster {

// Memory that bytes pass through on their way to a consumer; small enough to stay in a core's
// cache.
struct StagingBuffer {
  static constexpr size_t kBytes = 256 << 10;
  // Room in front for the part of an element left over from the piece before.
  static constexpr size_t kCarry = 64;
  StagingBuffer();
  std::byte* data() { return memory.get(); }
  struct Free {
    void operator()(std::byte* pointer) const;
  };
  std::unique_ptr<std::byte[], Free> memory;  // kCarry + kBytes, 64-byte aligned
};

class TcpConnection {
 public:
  // `receives` is the peer's; both must outlive the connection.
  TcpConnection(UniqueFd fd, ReceiveTable* receives, StagingBuffer* staging);

  int fd() const { return fd_.get(); }

  void QueueSend(uint64_t tag, absl::Span<const std::byte> bytes, uint64_t token);
  bool has_sends() const { return !sends_.empty(); }
  // Writes what the kernel takes; appends the tokens of messages it took whole.
  absl::Status Flush(std::vector<uint64_t>* completed);

  // Reads and delivers what is there, about `budget_bytes` at most, or up to the end of a message
  // for a standing receive: its reader may post the receives of what follows, which then need not
  // be kept anywhere. *more: stopped at the budget.
  absl::Status Read(int64_t budget_bytes, std::vector<uint64_t>* completed, bool* more);
  // Something that was read follows the message for a standing receive: Read takes it in.
  bool paused() const { return paused_ && begin_ < end_; }
  // The message at the head waits for its receive.
  bool held_back() const { return held_back_.has_value(); }
  bool mid_message() const { return current_.has_value() || early_; }
  bool at_end() const { return at_end_; }

  // What epoll has been asked for.
  uint32_t armed_events = 0;

 private:
  struct Outgoing {
    std::array<std::byte, kDataHeaderBytes> header;
    absl::Span<const std::byte> bytes;
    uint64_t token = 0;
  };

  // Takes from the look-ahead buffer all it can.
  absl::Status Parse(std::vector<uint64_t>* completed);
  absl::Status Begin(const TcpDataHeader& header, std::vector<uint64_t>* completed);
  // Hands on `size` bytes, the carry among them, that begin an element.
  void DeliverToConsumer(std::byte* start, size_t size);
  void TakeFromLookAhead(const std::byte* bytes, size_t size);
  absl::Status FinishIfWhole(std::vector<uint64_t>* completed);
  // One system call. Returns bytes read; 0: nothing there, or end of stream (at_end_).
  absl::StatusOr<size_t> ReadOnce(size_t* wanted);

  UniqueFd fd_;
  ReceiveTable* const receives_;
  StagingBuffer* const staging_;

  std::deque<Outgoing> sends_;
  size_t head_written_ = 0;  // bytes of the first frame the kernel has

  static constexpr size_t kLookAheadBytes = 64 << 10;
  std::unique_ptr<std::byte[], StagingBuffer::Free> look_ahead_;
  size_t begin_ = 0;
  size_t end_ = 0;
  std::optional<PendingReceive> current_;  // the message being received,
  bool early_ = false;                     // or one taken in early: `early_bytes_`
  std::byte* early_bytes_ = nullptr;
  TcpDataHeader header_;
  int64_t received_ = 0;
  size_t padding_left_ = 0;
  std::array<std::byte, 16> carry_;  // start of an element whose rest is not there
  size_t carried_ = 0;
  std::optional<TcpDataHeader> held_back_;
  bool paused_ = false;  // after a message for a standing receive
  bool at_end_ = false;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_TCP_CONNECTION_H_
