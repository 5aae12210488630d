// The dialer's end of a call by which this rank sends to another, over a connection of its own.
//
// Large messages go out from the sender's memory, without a copy: their pieces count as pinned with
// the signal until gRPC has let go of them. Small ones are copied. One write of up to kChunkBytes
// is under way at a time.
//
// The connection is opened here, not by gRPC, so that Cut() can end it at once: only that makes
// gRPC let go of memory that it is writing to a peer that does not read.
//
// Thread-safe; no call blocks. Must not be destroyed before done().
#ifndef MUSTER_COLLECTIVES_TRANSPORT_GRPC_GRPC_OUTGOING_CALL_H_
#define MUSTER_COLLECTIVES_TRANSPORT_GRPC_GRPC_OUTGOING_CALL_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "collectives/transport/grpc/grpc_signal.h"
#include "collectives/transport/socket.h"

namespace muster {

class OutgoingCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // Sends `hello` over `connection`, which is connected to `address`.
  static absl::StatusOr<std::shared_ptr<OutgoingCall>> Start(UniqueFd connection,
                                                             const std::string& address,
                                                             const std::string& hello,
                                                             std::shared_ptr<GrpcSignal> signal);
  ~OutgoingCall() override;

  // The answer to the hello, once it is there.
  std::optional<std::string> answer() const ABSL_LOCKS_EXCLUDED(mu_);
  // The final status, once the listener has given one or the connection is broken.
  std::optional<grpc::Status> ended() const ABSL_LOCKS_EXCLUDED(mu_);

  void Send(uint64_t tag, absl::Span<const std::byte> bytes, uint64_t token)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Something sent has not left, and never will if the call has ended.
  bool has_sends() const ABSL_LOCKS_EXCLUDED(mu_);

  // Drops what has not been handed to gRPC yet and takes nothing more.
  void StopSending() ABSL_LOCKS_EXCLUDED(mu_);
  // After StopSending: says that nothing follows.
  void SayGoodbye() ABSL_LOCKS_EXCLUDED(mu_);
  void Cancel();
  void Cut();
  // gRPC has done with it.
  bool AwaitDone(absl::Time deadline) const { return signal_->AwaitDone(&done_, deadline); }

 private:
  struct Message;  // one that goes out from the sender's memory

  struct Outgoing {
    uint64_t tag = 0;
    absl::Span<const std::byte> bytes;
    uint64_t token = 0;
    Message* message = nullptr;  // once the first of its pieces has been handed over
  };

  OutgoingCall(UniqueFd connection, std::shared_ptr<GrpcSignal> signal);
  void OnReadInitialMetadataDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;
  // Starts what may be started next.
  void GoOn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes outgoing_ of what waits.
  void FillOutgoing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const UniqueFd connection_;  // gRPC has another descriptor of it
  const std::shared_ptr<GrpcSignal> signal_;
  std::shared_ptr<grpc::Channel> channel_;
  grpc::ClientContext context_;
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer outgoing_;  // gRPC's while writing_

  mutable Mutex mu_;
  std::optional<std::string> answer_ ABSL_GUARDED_BY(mu_);
  std::optional<grpc::Status> status_ ABSL_GUARDED_BY(mu_);
  std::deque<Outgoing> queue_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool lost_ ABSL_GUARDED_BY(mu_) = false;     // a write failed
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;  // StopSending
  bool goodbye_ ABSL_GUARDED_BY(mu_) = false;  // to be said
  bool over_ ABSL_GUARDED_BY(mu_) = false;     // nothing may be started any more
  bool held_ ABSL_GUARDED_BY(mu_) = true;      // the hold that lets other threads start writes
  bool done_ = false;                          // the signal's
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_GRPC_GRPC_OUTGOING_CALL_H_
