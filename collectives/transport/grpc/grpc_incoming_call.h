// The listener's end of a call by which another rank sends to this one.
//
// What arrives is kept until the driver takes it, up to kReadAheadBytes; beyond that nothing is
// read, and HTTP/2's flow control holds the sender back. Thread-safe; no call blocks.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_GRPC_GRPC_INCOMING_CALL_H_
#define MUSTER_COLLECTIVES_TRANSPORT_GRPC_GRPC_INCOMING_CALL_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "collectives/transport/grpc/grpc_signal.h"

namespace muster {

class IncomingCall final : public grpc::ServerGenericBidiReactor {
 public:
  // gRPC keeps it alive until the call has ended.
  static std::shared_ptr<IncomingCall> Make(grpc::GenericCallbackServerContext* context);

  // Answers the hello, one or the other. From a welcome on `signal` hears of all that happens.
  void Welcome(std::string answer, std::shared_ptr<GrpcSignal> signal) ABSL_LOCKS_EXCLUDED(mu_);
  void Refuse(const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mu_) { Leave(status); }

  // For the driver. Cheap: there may be something to take.
  bool has_arrived() const { return has_arrived_.load(std::memory_order_acquire); }
  // Appends what has arrived to *slices.
  void Take(std::deque<grpc::Slice>* slices) ABSL_LOCKS_EXCLUDED(mu_);
  // So many of the bytes taken have been used; makes room for more.
  void Used(size_t bytes) ABSL_LOCKS_EXCLUDED(mu_);

  enum class State {
    kOpen,
    kGoodbye,  // the dialer has said that nothing follows; all of it has arrived
    kBroken,   // it ended without that word
  };
  State state() const { return state_.load(std::memory_order_acquire); }

  // Ends the call with this status, unless it has ended. Nothing that comes later counts.
  void Leave(const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  explicit IncomingCall(grpc::GenericCallbackServerContext* context) : context_(context) {}
  void OnReadDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void End(State state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FinishOnce(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReadOn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  grpc::GenericCallbackServerContext* const context_;
  grpc::ByteBuffer incoming_;  // gRPC's while reading_

  Mutex mu_;
  std::shared_ptr<IncomingCall> self_ ABSL_GUARDED_BY(mu_);  // until OnDone
  std::shared_ptr<GrpcSignal> signal_ ABSL_GUARDED_BY(mu_);
  std::vector<grpc::Slice> arrived_ ABSL_GUARDED_BY(mu_);
  size_t unused_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // arrived and not used
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  std::atomic<bool> has_arrived_{false};
  std::atomic<State> state_{State::kOpen};
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_GRPC_GRPC_INCOMING_CALL_H_
