#include "bench/parameter_server/echo.h"

#include <grpcpp/client_context.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "proto/rpc/bulk.h"
#include "proto/rpc/payload_frame.h"
#include "proto/rpc/status.h"

namespace muster::bench {
namespace {

constexpr char kEchoMethod[] = "/muster.bench.Echo/Echo";
constexpr char kDropMethod[] = "/muster.bench.Echo/Drop";
// Messages that have come and are not sent back yet.
constexpr size_t kMaxQueued = 4;

class EchoReactor final : public grpc::ServerGenericBidiReactor {
 public:
  explicit EchoReactor(bool drop) : drop_(drop) { StartRead(&incoming_); }

 private:
  void OnReadDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    if (!ok) {
      over_ = true;
    } else if (drop_) {
      incoming_.Clear();
      StartRead(&incoming_);
      return;
    } else {
      queue_.push_back(std::move(incoming_));
      incoming_.Clear();
      if (queue_.size() < kMaxQueued) {
        StartRead(&incoming_);
      } else {
        full_ = true;
      }
    }
    GoOn();
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    outgoing_.Clear();
    if (!ok) over_ = true;
    if (std::exchange(full_, false)) StartRead(&incoming_);
    GoOn();
  }

  void GoOn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_) return;
    if (!queue_.empty()) {
      outgoing_.Swap(&queue_.front());
      queue_.pop_front();
      writing_ = true;
      StartWrite(&outgoing_);
    } else if (over_ && !finished_) {
      finished_ = true;
      Finish(grpc::Status::OK);
    }
  }

  void OnDone() override { delete this; }

  const bool drop_;
  grpc::ByteBuffer incoming_;
  absl::Mutex mutex_;
  std::deque<grpc::ByteBuffer> queue_ ABSL_GUARDED_BY(mutex_);
  grpc::ByteBuffer outgoing_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool full_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

// The client's end of one call.
class Sender final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Sender(absl::Span<const std::byte> from, absl::Span<std::byte> to, size_t chunk_bytes)
      : from_(from), to_(to), chunk_bytes_(chunk_bytes) {}

  absl::Status Run(grpc::GenericStub& stub, const char* method) {
    stub.PrepareBidiStreamingCall(&context_, method, {}, this);
    StartRead(&incoming_);
    WriteNext();
    StartCall();
    done_.WaitForNotification();
    return FromGrpcStatus(status_, "echo server");
  }
  size_t received() const { return received_; }

 private:
  void WriteNext() {
    if (from_.empty()) {
      StartWritesDone();
      return;
    }
    const size_t bytes = std::min(chunk_bytes_, from_.size());
    const grpc::Slice slice(from_.data(), bytes, grpc::Slice::STATIC_SLICE);
    outgoing_ = grpc::ByteBuffer(&slice, 1);
    from_.remove_prefix(bytes);
    StartWrite(&outgoing_);
  }
  void OnWriteDone(bool ok) override {
    if (ok) WriteNext();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    received_ += incoming_.Length();
    if (!to_.empty()) {
      std::vector<grpc::Slice> pieces;
      (void)incoming_.Dump(&pieces);
      Payload payload(std::move(pieces));
      const size_t bytes = payload.size();
      payload.Read(to_.first(bytes));
      to_.remove_prefix(bytes);
    }
    incoming_.Clear();
    StartRead(&incoming_);
  }
  void OnDone(const grpc::Status& status) override {
    status_ = status;
    done_.Notify();
  }

  absl::Span<const std::byte> from_;
  absl::Span<std::byte> to_;
  const size_t chunk_bytes_;
  grpc::ClientContext context_;
  grpc::ByteBuffer outgoing_;
  grpc::ByteBuffer incoming_;
  size_t received_ = 0;
  grpc::Status status_;
  absl::Notification done_;
};

}  // namespace

class EchoServer::Service final : public grpc::CallbackGenericService {
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return new EchoReactor(context->method() == kDropMethod);
  }
};

EchoServer::EchoServer() : service_(std::make_unique<Service>()) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
  builder.RegisterCallbackGenericService(service_.get());
  SetBulkArguments(builder);
  server_ = builder.BuildAndStart();
}

EchoServer::~EchoServer() {
  server_->Shutdown();
  server_->Wait();
}

absl::Status RunEcho(const std::shared_ptr<grpc::Channel>& channel, EchoMode mode,
                     absl::Span<const std::byte> from, absl::Span<std::byte> to,
                     size_t chunk_bytes) {
  grpc::GenericStub stub(channel);
  Sender sender(from, mode == EchoMode::kIntoMemory ? to : absl::Span<std::byte>(), chunk_bytes);
  const absl::Status status =
      sender.Run(stub, mode == EchoMode::kOneWay ? kDropMethod : kEchoMethod);
  const size_t expected = mode == EchoMode::kOneWay ? 0 : from.size();
  if (status.ok() && sender.received() != expected) {
    return absl::InternalError(
        absl::StrFormat("%d bytes came back of %d", sender.received(), expected));
  }
  return status;
}

}  // namespace muster::bench
