#include "client/parameters/transfer_call.h"

#include <grpcpp/generic/generic_stub.h>

#include "proto/rpc/status.h"

namespace muster {

void TransferCall::Start(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                         absl::Time deadline) {
  context_.set_deadline(absl::ToChronoTime(deadline));
  grpc::GenericStub stub(channel);
  stub.PrepareBidiStreamingCall(&context_, method, {}, this);
  StartRead(&incoming_);
  WriteNext();
  StartCall();
}

absl::Status TransferCall::Wait() {
  done_.WaitForNotification();
  return result_;
}

void TransferCall::WriteNext() {
  std::optional<grpc::ByteBuffer> next = ends_.source();
  if (next.has_value()) {
    outgoing_ = *std::move(next);
    StartWrite(&outgoing_);
  } else {
    StartWritesDone();
  }
}

void TransferCall::OnWriteDone(bool ok) {
  outgoing_.Clear();
  // Where it is not OK the call ends, with the server's reason.
  if (ok) WriteNext();
}

void TransferCall::OnReadDone(bool ok) {
  if (!ok) return;
  refused_ = ends_.sink(incoming_);
  incoming_.Clear();
  if (refused_.ok()) {
    StartRead(&incoming_);
  } else {
    context_.TryCancel();
  }
}

void TransferCall::OnDone(const grpc::Status& status) {
  if (!refused_.ok()) {
    result_ = refused_;
  } else if (!status.ok()) {
    result_ = FromGrpcStatus(status, peer_);
  } else {
    result_ = ends_.complete();
  }
  told_(result_);
  done_.Notify();
}

}  // namespace muster
