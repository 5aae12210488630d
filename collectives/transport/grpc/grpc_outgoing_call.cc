#include "collectives/transport/grpc/grpc_outgoing_call.h"

#include <fcntl.h>
#include <grpc/grpc.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/slice.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/check.h"
#include "collectives/transport/grpc/grpc_wire.h"
#include "collectives/transport/tcp_frame.h"

namespace muster {
namespace {

// Messages up to this size are copied: cheaper than to count a piece of memory.
constexpr size_t kCopiedBytes = 4 << 10;
// Kept below what one system call takes.
constexpr size_t kMaxPieces = 32;

grpc::ChannelArguments MakeArguments() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 5'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return arguments;
}

}  // namespace

// Deletes itself with the last piece that gRPC lets go of.
struct OutgoingCall::Message {
  std::shared_ptr<GrpcSignal> signal;
  uint64_t token = 0;
  std::atomic<int64_t> holds{1};  // pieces that gRPC has, and one for those to come

  static void LetGo(void* pointer) {
    auto* const message = static_cast<Message*>(pointer);
    const std::shared_ptr<GrpcSignal> signal = message->signal;
    const uint64_t token = message->token;
    const bool last = --message->holds == 0;
    if (last) delete message;
    signal->Unpin(last ? std::optional<uint64_t>(token) : std::nullopt);
  }
  // No piece follows: all have been handed over, or the rest is dropped.
  static void NoMore(Message* message, bool whole) {
    const std::shared_ptr<GrpcSignal> signal = message->signal;
    const uint64_t token = message->token;
    if (--message->holds > 0) return;
    delete message;
    if (whole) signal->Complete(token);
  }
};

absl::StatusOr<std::shared_ptr<OutgoingCall>> OutgoingCall::Start(
    UniqueFd connection, const std::string& address, const std::string& hello,
    std::shared_ptr<GrpcSignal> signal) {
  const int descriptor = fcntl(connection.get(), F_DUPFD_CLOEXEC, 0);
  if (descriptor < 0) return ErrnoStatus(errno, "a second descriptor for a connection");
  std::shared_ptr<OutgoingCall> call(new OutgoingCall(std::move(connection), std::move(signal)));
  call->channel_ = grpc::CreateCustomInsecureChannelFromFd(address, descriptor, MakeArguments());
  call->context_.AddMetadata(kHelloKey, hello);
  grpc::GenericStub stub(call->channel_);
  stub.PrepareBidiStreamingCall(&call->context_, kMeshMethod, {}, call.get());
  // Writes are started from other threads, too. The hold keeps gRPC from ending the call under
  // them; it goes once reading has failed, which every end of a call brings about.
  call->AddHold();
  call->StartRead(&call->incoming_);
  call->StartCall();
  return call;
}

OutgoingCall::OutgoingCall(UniqueFd connection, std::shared_ptr<GrpcSignal> signal)
    : connection_(std::move(connection)), signal_(std::move(signal)) {}

OutgoingCall::~OutgoingCall() {
  MUSTER_CHECK(signal_->IsDone(&done_)) << "a call that gRPC still uses is destroyed";
}

std::optional<std::string> OutgoingCall::answer() const {
  MutexLock lock(&mu_);
  return answer_;
}

std::optional<grpc::Status> OutgoingCall::ended() const {
  MutexLock lock(&mu_);
  return status_;
}

bool OutgoingCall::has_sends() const {
  MutexLock lock(&mu_);
  return !queue_.empty() || writing_ || lost_;
}

void OutgoingCall::Send(uint64_t tag, absl::Span<const std::byte> bytes, uint64_t token) {
  MutexLock lock(&mu_);
  if (stopped_) return;
  queue_.push_back({tag, bytes, token});
  GoOn();
}

void OutgoingCall::FillOutgoing() {
  std::vector<grpc::Slice> slices;
  std::string copied;
  size_t total = 0;
  const auto flush_copied = [&] {
    if (!copied.empty()) slices.emplace_back(copied);
    copied.clear();
  };
  while (!queue_.empty() && total < kChunkBytes && slices.size() < kMaxPieces) {
    Outgoing& send = queue_.front();
    const bool small = send.bytes.size() <= kCopiedBytes;
    if (send.message == nullptr) {
      const int64_t length = static_cast<int64_t>(send.bytes.size());
      const auto header = EncodeDataHeader({send.tag, length});
      copied.append(reinterpret_cast<const char*>(header.data()), header.size());
      total += header.size();
      if (small) {
        copied.append(reinterpret_cast<const char*>(send.bytes.data()), send.bytes.size());
        total += send.bytes.size();
        signal_->Complete(send.token);
        queue_.pop_front();
        continue;
      }
      send.message = new Message{signal_, send.token};
    }
    flush_copied();
    const size_t piece = std::min(send.bytes.size(), size_t{kChunkBytes});
    ++send.message->holds;
    signal_->Pin();
    slices.emplace_back(const_cast<std::byte*>(send.bytes.data()), piece, &Message::LetGo,
                        send.message);
    total += piece;
    send.bytes.remove_prefix(piece);
    if (!send.bytes.empty()) break;
    Message::NoMore(send.message, /*whole=*/true);
    queue_.pop_front();
  }
  flush_copied();
  outgoing_ = grpc::ByteBuffer(slices.data(), slices.size());
}

void OutgoingCall::GoOn() {
  if (writing_ || over_ || !answer_.has_value()) return;
  if (!queue_.empty()) {
    FillOutgoing();
    writing_ = true;
    StartWrite(&outgoing_);
  } else if (std::exchange(goodbye_, false)) {
    grpc::Slice nothing;
    outgoing_ = grpc::ByteBuffer(&nothing, 1);
    writing_ = true;
    StartWriteLast(&outgoing_, grpc::WriteOptions());
  }
}

void OutgoingCall::OnReadInitialMetadataDone(bool ok) {
  MutexLock lock(&mu_);
  if (!ok) return;  // OnDone says why.
  const auto& metadata = context_.GetServerInitialMetadata();
  const auto it = metadata.find(kAnswerKey);
  answer_ =
      it == metadata.end() ? std::string() : std::string(it->second.data(), it->second.size());
  signal_->Raise();
}

void OutgoingCall::OnReadDone(bool ok) {
  bool release = false;
  if (ok) {
    context_.TryCancel();  // A listener of ours sends nothing.
    incoming_.Clear();
    StartRead(&incoming_);
    return;
  }
  {
    MutexLock lock(&mu_);
    over_ = true;
    release = !writing_ && std::exchange(held_, false);
  }
  if (release) RemoveHold();
}

void OutgoingCall::OnWriteDone(bool ok) {
  bool release = false;
  {
    MutexLock lock(&mu_);
    writing_ = false;
    outgoing_.Clear();
    lost_ = lost_ || !ok;
    GoOn();
    release = over_ && !writing_ && std::exchange(held_, false);
  }
  if (release) RemoveHold();
}

void OutgoingCall::OnDone(const grpc::Status& status) {
  const std::shared_ptr<GrpcSignal> signal = signal_;
  {
    MutexLock lock(&mu_);
    status_ = status;
  }
  signal->SetDone(&done_);
}

void OutgoingCall::StopSending() {
  MutexLock lock(&mu_);
  stopped_ = true;
  for (Outgoing& send : queue_) {
    if (send.message != nullptr) Message::NoMore(send.message, /*whole=*/false);
  }
  queue_.clear();
}

void OutgoingCall::SayGoodbye() {
  MutexLock lock(&mu_);
  goodbye_ = true;
  GoOn();
}

void OutgoingCall::Cancel() { context_.TryCancel(); }

void OutgoingCall::Cut() { shutdown(connection_.get(), SHUT_RDWR); }

}  // namespace muster
