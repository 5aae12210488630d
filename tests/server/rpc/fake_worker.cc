#include "tests/server/rpc/fake_worker.h"

#include <utility>

#include "base/control/rules.h"
#include "gtest/gtest.h"
#include "proto/convert/control.h"
#include "proto/rpc/channel.h"
#include "tests/wait_until.h"

namespace muster {

Hello TestHello(const std::string& name, uint64_t incarnation) {
  Hello hello;
  hello.self = {.name = name,
                .incarnation = Incarnation{incarnation},
                .host = "test",
                .data_address = "127.0.0.1:1",
                .rpc_address = "127.0.0.1:2",
                .device = "cpu"};
  hello.protocol_version = kControlProtocolVersion;
  hello.software_version = "test";
  return hello;
}

FakeWorker::FakeWorker(const std::string& address, const std::optional<Hello>& hello, bool obey)
    : obey_(obey), stub_(v1::Fleet::NewStub(NewChannel(address))) {
  stream_ = stub_->Session(&context_);
  if (hello) Send(ToProto(WorkerMessage(*hello)));
  reader_ = std::thread([this] { Read(); });
}

FakeWorker::~FakeWorker() {
  context_.TryCancel();
  reader_.join();
}

bool FakeWorker::Send(const v1::SessionRequest& request) {
  absl::MutexLock lock(&write_mutex_);
  return stream_->Write(request);
}

bool FakeWorker::SendStatus(WorkerStatus status) {
  {
    absl::MutexLock lock(&mutex_);
    status.sequence = status_.sequence + 1;
    status_ = status;
  }
  return Send(ToProto(WorkerMessage(status)));
}

WorkerStatus FakeWorker::status() {
  absl::MutexLock lock(&mutex_);
  return status_;
}

bool FakeWorker::ShowStep(Step step, double loss) {
  WorkerStatus status = this->status();
  status.applied.step = step;
  status.applied.epoch = status.active_epoch;
  status.stable = status.applied;
  status.stable.step = step - 1;
  status.progress = Progress{.step = step - 1, .loss = loss, .samples_per_second = 1'000};
  return SendStatus(status);
}

void FakeWorker::Read() {
  v1::SessionResponse response;
  while (stream_->Read(&response)) {
    if (obey_) Obey(response);
    absl::MutexLock lock(&mutex_);
    received_.push_back(response);
  }
  const grpc::Status status = stream_->Finish();
  absl::MutexLock lock(&mutex_);
  ended_ = status;
}

void FakeWorker::Obey(const v1::SessionResponse& response) {
  WorkerStatus status = this->status();
  if (response.has_propose()) {
    status.job = response.propose().job_id();
    status.phase = WorkerPhase::kQuiesced;
    status.seen_epoch = status.answered_epoch = response.propose().epoch();
  } else if (response.has_activate()) {
    absl::StatusOr<View> view = FromProto(response.activate().view(), "view");
    ASSERT_TRUE(view.ok()) << view.status();
    status.phase = WorkerPhase::kRunning;
    status.active_epoch = view->epoch;
    status.has_state = true;
    status.holdings.whole = true;
    status.applied = status.stable = view->resume;
  } else if (response.has_end_job()) {
    const uint64_t sequence = status.sequence;
    status = WorkerStatus();
    status.sequence = sequence;
  } else if (!response.has_welcome()) {
    return;
  }
  SendStatus(status);
}

std::optional<v1::SessionResponse> FakeWorker::Await(
    const std::function<bool(const v1::SessionResponse&)>& wanted) {
  absl::MutexLock lock(&mutex_);
  while (true) {
    const auto something = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !received_.empty() || ended_.has_value();
    };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&something), kTestPatience)) {
      ADD_FAILURE() << "the coordinator sent nothing for " << kTestPatience;
      return std::nullopt;
    }
    if (received_.empty()) return std::nullopt;
    v1::SessionResponse response = std::move(received_.front());
    received_.pop_front();
    if (wanted(response)) return response;
  }
}

std::optional<v1::SessionResponse> FakeWorker::Await(v1::SessionResponse::DirectiveCase directive) {
  return Await(
      [&](const v1::SessionResponse& response) { return response.directive_case() == directive; });
}

grpc::Status FakeWorker::AwaitEnd() {
  absl::MutexLock lock(&mutex_);
  const auto ended = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ended_.has_value(); };
  if (!mutex_.AwaitWithTimeout(absl::Condition(&ended), kTestPatience)) {
    ADD_FAILURE() << "the session has not ended within " << kTestPatience;
    return grpc::Status::OK;
  }
  return *ended_;
}

}  // namespace muster
