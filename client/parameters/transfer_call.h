// The client's end of one streaming call that moves data: what is sent comes from a source, what
// arrives goes to a sink, both on gRPC's threads. Thread-safe where said.
#ifndef MUSTER_CLIENT_PARAMETERS_TRANSFER_CALL_H_
#define MUSTER_CLIENT_PARAMETERS_TRANSFER_CALL_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace muster {

class TransferCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  struct Ends {
    // The next message, or nothing after the last one. One at a time.
    std::function<std::optional<grpc::ByteBuffer>()> source;
    // An error ends the call with it. One at a time.
    std::function<absl::Status(const grpc::ByteBuffer& message)> sink;
    // Asked when the call has ended well: whether all has come.
    std::function<absl::Status()> complete = [] { return absl::OkStatus(); };
  };

  // `peer` names the server in errors, `done` is called once with the call's end, before Wait
  // returns.
  TransferCall(std::string peer, Ends ends, std::function<void(const absl::Status&)> done)
      : peer_(std::move(peer)), ends_(std::move(ends)), told_(std::move(done)) {}

  // `method` is "/package.Service/Method". Call once.
  void Start(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
             absl::Time deadline);
  // From any thread, any time.
  void Cancel() { context_.TryCancel(); }
  // Waits for the end. Requires: started.
  absl::Status Wait();

 private:
  void OnWriteDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;
  void WriteNext();

  const std::string peer_;
  const Ends ends_;
  const std::function<void(const absl::Status&)> told_;
  grpc::ClientContext context_;
  grpc::ByteBuffer outgoing_;  // gRPC's while a write is under way
  grpc::ByteBuffer incoming_;  // gRPC's while a read is
  absl::Status refused_;       // by the sink; of reading callbacks
  absl::Status result_;
  absl::Notification done_;
};

}  // namespace muster

#endif  // MUSTER_CLIENT_PARAMETERS_TRANSFER_CALL_H_
