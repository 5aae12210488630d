#include "collectives/transport/grpc/grpc_rendezvous.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "collectives/transport/grpc/grpc_wire.h"

namespace muster {
namespace {

grpc::Status Refusal(TcpVerdict verdict, const std::string& why) {
  const bool busy = verdict == TcpVerdict::kBusy;
  return grpc::Status(
      busy ? grpc::StatusCode::RESOURCE_EXHAUSTED : grpc::StatusCode::FAILED_PRECONDITION,
      absl::StrCat("refused: ", why));
}

}  // namespace

grpc::ServerGenericBidiReactor* GrpcRendezvous::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  if (context->method() != kMeshMethod) {
    return grpc::CallbackGenericService::CreateReactor(context);
  }
  const std::shared_ptr<IncomingCall> call = IncomingCall::Make(context);
  const auto& metadata = context->client_metadata();
  const auto it = metadata.find(kHelloKey);
  if (it == metadata.end()) {
    call->Refuse(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                              absl::StrCat("expected a hello in the metadata ", kHelloKey)));
    return call.get();
  }
  absl::StatusOr<TcpHello> hello =
      DecodeHello(BytesOf(absl::string_view(it->second.data(), it->second.size())));
  if (hello.ok() && hello->channel == 0) {
    hello = absl::InvalidArgumentError("a hello for channel 0; those of gRPC count from 1");
  }
  if (!hello.ok()) {
    call->Refuse(grpc::Status(static_cast<grpc::StatusCode>(hello.status().code()),
                              std::string(hello.status().message())));
    return call.get();
  }
  MutexLock lock(&mu_);
  Settle(call, *hello, absl::Now() + options_.park_timeout);
  return call.get();
}

void GrpcRendezvous::Settle(std::shared_ptr<IncomingCall> call, const TcpHello& hello,
                            absl::Time park_until) {
  std::string why;
  std::optional<TcpVerdict> verdict = admission_.Judge(hello, &why);
  if (verdict == TcpVerdict::kWelcome) {
    const MeshPlan& plan = *admission_.plan();
    TcpAnswer answer;
    answer.epoch = plan.epoch;
    answer.incarnation = plan.incarnations[plan.rank];
    call->Welcome(EncodeAnswer(answer, ""), signal_);
    arrivals_.push_back({std::move(call), hello.from_rank, hello.channel});
    signal_->Raise();
    return;
  }
  if (!verdict.has_value() && static_cast<int>(parked_.size()) >= options_.max_parked) {
    verdict = TcpVerdict::kBusy;
    why = absl::StrCat(parked_.size(), " calls for epochs to come are waiting already");
  }
  if (verdict.has_value()) {
    call->Refuse(Refusal(*verdict, why));
  } else {
    parked_.push_back({std::move(call), hello, park_until});
  }
}

void GrpcRendezvous::SortParked() {
  const absl::Time now = absl::Now();
  for (Parked& parked : std::exchange(parked_, {})) {
    if (parked.call->state() != IncomingCall::State::kOpen) continue;
    if (parked.deadline <= now) {
      parked.call->Refuse(grpc::Status(
          grpc::StatusCode::DEADLINE_EXCEEDED,
          absl::StrCat("epoch ", parked.hello.epoch, " was not begun here meanwhile")));
    } else {
      Settle(std::move(parked.call), parked.hello, parked.deadline);
    }
  }
}

absl::Status GrpcRendezvous::Begin(MeshPlan plan, std::shared_ptr<GrpcSignal> signal) {
  MutexLock lock(&mu_);
  MUSTER_RETURN_IF_ERROR(admission_.Begin(std::move(plan)));
  signal_ = std::move(signal);
  SortParked();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<GrpcArrival>> GrpcRendezvous::Take() {
  MutexLock lock(&mu_);
  MUSTER_RETURN_IF_ERROR(admission_.status());
  return std::exchange(arrivals_, {});
}

void GrpcRendezvous::End() {
  MutexLock lock(&mu_);
  admission_.End();
  signal_ = nullptr;
  for (const GrpcArrival& arrival : arrivals_) {
    arrival.call->Leave(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the mesh was not formed"));
  }
  arrivals_.clear();
  SortParked();
}

void GrpcRendezvous::CancelThrough(Epoch epoch) {
  MutexLock lock(&mu_);
  if (admission_.CancelThrough(epoch)) signal_->Raise();
  SortParked();
}

}  // namespace muster
