// Takes messages out of a stream of bytes that comes in pieces of any size, and hands them to the
// receives posted for them.
//
// The stream: for each message a header (tcp_frame.h) and its bytes, without padding. Whatever the
// stream holds, only memory that a receive or the table gave is written. Driven by one thread.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_GRPC_FRAME_READER_H_
#define MUSTER_COLLECTIVES_TRANSPORT_GRPC_FRAME_READER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "collectives/transport/receive_table.h"
#include "collectives/transport/tcp_connection.h"
#include "collectives/transport/tcp_frame.h"

namespace muster {

class FrameReader {
 public:
  // Both must outlive the reader. Readers of one thread may share `staging`.
  FrameReader(ReceiveTable* receives, StagingBuffer* staging)
      : receives_(receives), staging_(staging) {}

  // Takes bytes off the front and appends the tokens of receives that are served. Returns how many
  // it took: fewer than there are when the next message waits for its receive. INVALID_ARGUMENT:
  // they are no frames, or a message has another length than its receive.
  absl::StatusOr<size_t> Take(absl::Span<const std::byte> bytes, std::vector<uint64_t>* completed);

  // The stream must not end here.
  bool mid_message() const { return receiving() || header_got_ > 0; }

 private:
  bool receiving() const { return current_.has_value() || early_; }
  // Of the message that header_ begins. False: it waits for its receive.
  absl::StatusOr<bool> Begin();
  void Deliver(absl::Span<const std::byte> piece);
  void Consume(absl::Span<const std::byte> piece);
  absl::Status Finish(std::vector<uint64_t>* completed);

  ReceiveTable* const receives_;
  StagingBuffer* const staging_;
  std::array<std::byte, kDataHeaderBytes> header_bytes_;
  size_t header_got_ = 0;
  bool waits_ = false;  // header_ is there, its receive is not
  TcpDataHeader header_;
  std::optional<PendingReceive> current_;  // the message being received,
  bool early_ = false;                     // or one taken in early
  std::byte* early_bytes_ = nullptr;
  int64_t received_ = 0;             // of its bytes; of a consumer's, those in whole elements
  std::array<std::byte, 16> carry_;  // start of an element whose rest is not there
  size_t carried_ = 0;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_GRPC_FRAME_READER_H_
