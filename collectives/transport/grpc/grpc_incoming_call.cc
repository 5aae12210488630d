#include "collectives/transport/grpc/grpc_incoming_call.h"

#include <utility>

#include "collectives/transport/grpc/grpc_wire.h"

namespace muster {
namespace {

constexpr size_t kReadAheadBytes = 4 * kChunkBytes;

}  // namespace

std::shared_ptr<IncomingCall> IncomingCall::Make(grpc::GenericCallbackServerContext* context) {
  std::shared_ptr<IncomingCall> call(new IncomingCall(context));
  MutexLock lock(&call->mu_);
  call->self_ = call;
  return call;
}

void IncomingCall::Welcome(std::string answer, std::shared_ptr<GrpcSignal> signal) {
  MutexLock lock(&mu_);
  signal_ = std::move(signal);
  if (finished_) {  // The dialer was quicker to leave.
    signal_->RaiseTrouble();
    return;
  }
  context_->AddInitialMetadata(kAnswerKey, answer);
  StartSendInitialMetadata();
  ReadOn();
}

void IncomingCall::ReadOn() {
  if (reading_ || finished_ || unused_bytes_ >= kReadAheadBytes) return;
  reading_ = true;
  StartRead(&incoming_);
}

void IncomingCall::OnReadDone(bool ok) {
  MutexLock lock(&mu_);
  reading_ = false;
  if (!ok) {
    End(State::kBroken);
    return;
  }
  if (incoming_.Length() == 0) {
    End(State::kGoodbye);
    return;
  }
  std::vector<grpc::Slice> slices;
  if (!incoming_.Dump(&slices).ok()) {
    End(State::kBroken);
    return;
  }
  unused_bytes_ += incoming_.Length();
  incoming_.Clear();
  for (grpc::Slice& slice : slices) arrived_.push_back(std::move(slice));
  has_arrived_.store(true, std::memory_order_release);
  signal_->Raise();
  ReadOn();
}

void IncomingCall::OnCancel() {
  MutexLock lock(&mu_);
  End(State::kBroken);
}

void IncomingCall::End(State state) {
  // After this end's own last word the dialer's is of no interest.
  if (state_ == State::kOpen) {
    state_.store(state, std::memory_order_release);
    if (signal_ != nullptr) signal_->RaiseTrouble();
  }
  FinishOnce(state == State::kGoodbye ? grpc::Status::OK
                                      : grpc::Status(grpc::StatusCode::CANCELLED,
                                                     "the dialer ended the call without goodbye"));
}

void IncomingCall::FinishOnce(const grpc::Status& status) {
  if (std::exchange(finished_, true)) return;
  Finish(status);
}

void IncomingCall::Leave(const grpc::Status& status) {
  MutexLock lock(&mu_);
  FinishOnce(status);
}

void IncomingCall::OnDone() {
  std::shared_ptr<IncomingCall> self;  // destroyed after the lock is released
  MutexLock lock(&mu_);
  self = std::move(self_);
}

void IncomingCall::Take(std::deque<grpc::Slice>* slices) {
  MutexLock lock(&mu_);
  for (grpc::Slice& slice : arrived_) slices->push_back(std::move(slice));
  arrived_.clear();
  has_arrived_.store(false, std::memory_order_release);
}

void IncomingCall::Used(size_t bytes) {
  MutexLock lock(&mu_);
  unused_bytes_ -= bytes;
  if (signal_ != nullptr) ReadOn();
}

}  // namespace muster
