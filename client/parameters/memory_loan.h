// Memory of a caller that gRPC reads from without a copy: gRPC may still read some of it when the
// call is over (what it was writing to a socket when a call was cancelled), so whoever owns the
// memory waits for its return.
//
// Thread-safe.
#ifndef MUSTER_CLIENT_PARAMETERS_MEMORY_LOAN_H_
#define MUSTER_CLIENT_PARAMETERS_MEMORY_LOAN_H_

#include <grpcpp/support/slice.h>

#include <cstddef>
#include <memory>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/rpc/payload_frame.h"

namespace muster {

class MemoryLoan {
 public:
  MemoryLoan() : token_(std::make_shared<Token>(returned_)) {}

  // A slice over `memory`, which is lent until the slice is gone.
  grpc::Slice Lend(absl::Span<const std::byte> memory) const { return SliceOver(memory, token_); }

  // True if all has come back. Lend no more.
  bool AwaitReturn(absl::Duration timeout) {
    token_.reset();
    return returned_->WaitForNotificationWithTimeout(timeout);
  }

 private:
  struct Token {
    explicit Token(std::shared_ptr<absl::Notification> gone_in) : gone(std::move(gone_in)) {}
    ~Token() { gone->Notify(); }
    const std::shared_ptr<absl::Notification> gone;
  };
  const std::shared_ptr<absl::Notification> returned_ = std::make_shared<absl::Notification>();
  std::shared_ptr<const Token> token_;
};

}  // namespace muster

#endif  // MUSTER_CLIENT_PARAMETERS_MEMORY_LOAN_H_
