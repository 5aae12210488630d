#include "worker/rpc/state_learner.h"

#include <grpcpp/client_context.h>

#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "muster/v1/worker.grpc.pb.h"
#include "proto/rpc/address.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/status.h"
#include "worker/rpc/transfer_convert.h"
#include "worker/rpc/transfer_receiver.h"

namespace muster {

class StateLearner::Impl {
 public:
  Impl(StateLearnerOptions options, StateSink& sink) : options_(std::move(options)), sink_(sink) {
    thread_ = std::thread([this] { sink_.OnEnded(Run()); });
    watchdog_ = std::thread([this] { Watch(); });
  }

  ~Impl() {
    Cancel();
    thread_.join();
    {
      absl::MutexLock lock(&mutex_);
      ended_ = true;
    }
    watchdog_.join();
  }

  void Cancel() {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    context_.TryCancel();
  }

 private:
  absl::Status Run() {
    MUSTER_RETURN_IF_ERROR(ParseHostPort(options_.source_address).status());
    const std::string peer = absl::StrCat("source ", options_.source_address);
    const std::unique_ptr<v1::StateTransfer::Stub> stub =
        v1::StateTransfer::NewStub(NewChannel(options_.source_address));
    std::unique_ptr<grpc::ClientReader<v1::LearnResponse>> reader =
        stub->Learn(&context_, ToProto(options_.request));
    TransferReceiver receiver(options_, sink_);
    v1::LearnResponse response;
    absl::Status refused;
    while (refused.ok() && reader->Read(&response)) {
      refused = receiver.Take(response);
      absl::MutexLock lock(&mutex_);
      ++messages_;
      unwatched_ = receiver.snapshot_done();
    }
    if (!refused.ok()) context_.TryCancel();
    const grpc::Status status = reader->Finish();
    absl::MutexLock lock(&mutex_);
    ended_ = true;
    if (cancelled_) return absl::CancelledError(absl::StrCat(peer, ": the transfer was cancelled"));
    if (silent_) {
      return absl::UnavailableError(absl::StrFormat(
          "%s: nothing came for %s", peer, absl::FormatDuration(options_.silence_timeout)));
    }
    if (!refused.ok()) return Annotate(refused, peer);
    if (status.ok()) return absl::UnavailableError(absl::StrCat(peer, ": ended the transfer"));
    return FromGrpcStatus(status, peer);
  }

  // Ends a transfer on which nothing moves before the snapshot is complete. Afterwards keepalive
  // finds a lost source.
  void Watch() {
    absl::MutexLock lock(&mutex_);
    while (!ended_ && !unwatched_) {
      const int64_t seen = messages_;
      const auto moved = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return ended_ || unwatched_ || messages_ != seen;
      };
      if (!mutex_.AwaitWithTimeout(absl::Condition(&moved), options_.silence_timeout)) {
        silent_ = true;
        context_.TryCancel();
        return;
      }
    }
  }

  const StateLearnerOptions options_;
  StateSink& sink_;
  grpc::ClientContext context_;
  absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool silent_ ABSL_GUARDED_BY(mutex_) = false;
  bool unwatched_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t messages_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
  std::thread watchdog_;
};

StateLearner::StateLearner(StateLearnerOptions options, StateSink& sink)
    : impl_(std::make_unique<Impl>(std::move(options), sink)) {}
StateLearner::~StateLearner() = default;
void StateLearner::Cancel() { impl_->Cancel(); }

}  // namespace muster
