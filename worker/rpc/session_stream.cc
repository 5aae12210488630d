#include "worker/rpc/session_stream.h"

#include <utility>

#include "base/check.h"
#include "proto/rpc/channel.h"

namespace muster {

std::shared_ptr<SessionStream> SessionStream::Open(const std::string& address,
                                                   v1::SessionRequest hello,
                                                   std::shared_ptr<SessionSignal> signal) {
  {
    absl::MutexLock lock(&signal->mutex);
    ++signal->open;
  }
  std::shared_ptr<SessionStream> stream(new SessionStream(std::move(signal)));
  stream->channel_ = NewChannel(address);
  stream->stub_ = v1::Fleet::NewStub(stream->channel_);
  absl::MutexLock lock(&stream->mutex_);
  stream->self_ = stream;
  stream->outgoing_ = std::move(hello);
  stream->stub_->async()->Session(&stream->context_, stream.get());
  // Reads and writes are started from the driver's thread. The hold keeps gRPC from ending the
  // stream under them; it goes when reading fails, which every end of a stream brings about.
  stream->AddHold();
  stream->StartWrite(&stream->outgoing_);
  stream->StartRead(&stream->incoming_);
  stream->StartCall();
  return stream;
}

std::optional<v1::SessionResponse> SessionStream::TakeMessage() {
  absl::MutexLock lock(&mutex_);
  if (!arrived_) return std::nullopt;
  arrived_ = false;
  v1::SessionResponse message = std::move(incoming_);
  incoming_.Clear();
  // closed_ cannot be set here: only a read under way can fail.
  StartRead(&incoming_);
  return message;
}

bool SessionStream::CanWrite() {
  absl::MutexLock lock(&mutex_);
  return !writing_ && !closed_ && !writes_done_;
}

bool SessionStream::WritesFlushed() {
  absl::MutexLock lock(&mutex_);
  return !writing_;
}

void SessionStream::Write(v1::SessionRequest message) {
  absl::MutexLock lock(&mutex_);
  // It may have ended since CanWrite.
  if (closed_) return;
  MUSTER_CHECK(!writing_ && !writes_done_) << "a write is under way";
  writing_ = true;
  outgoing_ = std::move(message);
  StartWrite(&outgoing_);
}

void SessionStream::WritesDone() {
  absl::MutexLock lock(&mutex_);
  if (closed_ || writing_ || writes_done_) return;
  writes_done_ = true;
  StartWritesDone();
}

void SessionStream::Cancel() {
  context_.TryCancel();
  absl::MutexLock lock(&mutex_);
  abandoned_ = true;
  // A message that nobody takes would keep the next read, and so the end, from coming.
  if (arrived_) {
    arrived_ = false;
    StartRead(&incoming_);
  }
}

std::optional<grpc::Status> SessionStream::Ended() {
  absl::MutexLock lock(&mutex_);
  if (arrived_) return std::nullopt;
  return status_;
}

void SessionStream::OnReadDone(bool ok) {
  bool release = false;
  {
    absl::MutexLock lock(&mutex_);
    if (ok && abandoned_) {
      StartRead(&incoming_);
    } else if (ok) {
      arrived_ = true;
    } else {
      closed_ = true;
      release = true;
    }
  }
  Raise();
  if (release) RemoveHold();
}

void SessionStream::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
  }
  Raise();
}

void SessionStream::OnDone(const grpc::Status& status) {
  const std::shared_ptr<SessionSignal> signal = signal_;
  std::shared_ptr<SessionStream> self;
  {
    absl::MutexLock lock(&mutex_);
    status_ = status;
    self = std::move(self_);
  }
  absl::MutexLock lock(&signal->mutex);
  signal->raised = true;
  --signal->open;
  signal->done.push_back(std::move(self));  // this object may be gone from here on
}

void SessionStream::Raise() {
  absl::MutexLock lock(&signal_->mutex);
  signal_->raised = true;
}

}  // namespace muster
