#include "worker/rpc/session_client.h"

#include <deque>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "muster/v1/coordinator.grpc.pb.h"
#include "proto/convert/control.h"
#include "proto/rpc/server.h"
#include "tests/wait_until.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A coordinator that records what workers say, and says what the test wants.
class FakeFleet final : public v1::Fleet::Service {
 public:
  explicit FakeFleet(const std::string& address = "127.0.0.1:0") {
    absl::StatusOr<RunningServer> running =
        StartServer({.listen_address = address, .services = {this}});
    EXPECT_TRUE(running.ok()) << running.status();
    if (running.ok()) running_ = *std::move(running);
  }
  ~FakeFleet() override { Stop(); }

  void Stop() {
    if (running_.server == nullptr) return;
    ShutdownServer(*running_.server, absl::ZeroDuration());
    running_.server.reset();
  }
  const std::string& address() const { return running_.address; }

  grpc::Status Session(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::SessionResponse, v1::SessionRequest>* stream) override {
    if (mute) {
      EXPECT_TRUE(WaitUntil([context] { return context->IsCancelled(); }));
      return grpc::Status::CANCELLED;
    }
    v1::SessionRequest request;
    if (!stream->Read(&request)) return grpc::Status::CANCELLED;
    {
      absl::MutexLock lock(&mutex_);
      hellos_.push_back(request.hello());
      if (!refusal_.ok()) return refusal_;
    }
    stream->Write(ToProto(
        1,
        Welcome{.fleet_id = "f", .heartbeat_ms = 10, .lease_ms = 100, .orphan_timeout_ms = 1'000}));
    {
      absl::MutexLock lock(&mutex_);
      stream_ = stream;
    }
    while (stream->Read(&request)) {
      if (read_delay > absl::ZeroDuration()) LetTimePass(read_delay, "a slow reader");
      absl::MutexLock lock(&mutex_);
      requests_.push_back(request);
      if (hang_up_) {
        hang_up_ = false;
        stream_ = nullptr;
        return grpc::Status(grpc::StatusCode::ABORTED, "hung up");
      }
    }
    absl::MutexLock lock(&mutex_);
    if (stream_ == stream) stream_ = nullptr;
    return grpc::Status::OK;
  }

  void Say(const v1::SessionResponse& response) {
    absl::MutexLock lock(&mutex_);
    const auto open = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stream_ != nullptr; };
    ASSERT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&open), kTestPatience));
    stream_->Write(response);
  }
  void HangUpAtNextMessage() {
    absl::MutexLock lock(&mutex_);
    hang_up_ = true;
  }
  void Refuse(grpc::Status status) {
    absl::MutexLock lock(&mutex_);
    refusal_ = status;
  }
  std::vector<v1::Hello> AwaitHellos(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return hellos_.size() >= count;
    };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&there), kTestPatience));
    return hellos_;
  }
  std::vector<v1::SessionRequest> AwaitRequests(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return requests_.size() >= count;
    };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&there), kTestPatience));
    return requests_;
  }

  // Set before a session opens.
  bool mute = false;
  absl::Duration read_delay;

 private:
  absl::Mutex mutex_;
  grpc::ServerReaderWriter<v1::SessionResponse, v1::SessionRequest>* stream_
      ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<v1::Hello> hellos_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::SessionRequest> requests_ ABSL_GUARDED_BY(mutex_);
  bool hang_up_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status refusal_ ABSL_GUARDED_BY(mutex_);
  RunningServer running_;
};

// Writes every call down: "attached", "detached: ...", "pause 3", "gave up: ...".
class Recorder final : public SessionObserver {
 public:
  void OnAttached() override { Add("attached"); }
  void OnDetached(const absl::Status& reason) override {
    Add(absl::StrCat("detached: ", reason.message()));
  }
  void OnDirective(Term term, const Directive& directive,
                   const std::optional<JobSpec>& job) override {
    if (const Pause* pause = std::get_if<Pause>(&directive)) {
      Add(absl::StrCat("pause ", pause->epoch, " of term ", term));
    } else if (std::holds_alternative<Welcome>(directive)) {
      Add("welcome");
    } else if (std::holds_alternative<Evicted>(directive)) {
      Add("evicted");
      if (on_evicted) on_evicted();
    }
  }
  void OnGaveUp(const absl::Status& reason) override {
    Add(absl::StrCat("gave up: ", reason.message()));
  }

  // The first call that begins so; those before it are dropped.
  std::string Await(absl::string_view prefix) {
    absl::MutexLock lock(&mutex_);
    while (true) {
      const auto there = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !calls_.empty(); };
      if (!mutex_.AwaitWithTimeout(absl::Condition(&there), kTestPatience)) {
        ADD_FAILURE() << "no call " << prefix;
        return "";
      }
      std::string call = calls_.front();
      calls_.pop_front();
      if (absl::string_view(call).substr(0, prefix.size()) == prefix) return call;
    }
  }
  std::vector<std::string> AwaitCalls(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&]()
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return calls_.size() >= count; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&there), kTestPatience));
    return {calls_.begin(), calls_.end()};
  }
  std::vector<std::string> Calls() {
    absl::MutexLock lock(&mutex_);
    return {calls_.begin(), calls_.end()};
  }

  std::function<void()> on_evicted;

 private:
  void Add(std::string call) {
    absl::MutexLock lock(&mutex_);
    calls_.push_back(std::move(call));
  }
  absl::Mutex mutex_;
  std::deque<std::string> calls_ ABSL_GUARDED_BY(mutex_);
};

Hello SomeHello(uint64_t incarnation = 7) {
  Hello hello;
  hello.self = {.name = "worker-0",
                .incarnation = Incarnation{incarnation},
                .host = "h",
                .data_address = "127.0.0.1:1",
                .rpc_address = "127.0.0.1:2",
                .device = "cpu"};
  return hello;
}
constexpr Incarnation kSelf{7};

SessionClientOptions Options(const std::string& address) {
  SessionClientOptions options;
  options.coordinator_address = address;
  options.initial_backoff = absl::Milliseconds(5);
  options.max_backoff = absl::Milliseconds(50);
  return options;
}

std::unique_ptr<SessionClient> StartClient(
    SessionClientOptions options, Recorder& recorder,
    std::function<Hello()> hello = [] { return SomeHello(); }) {
  auto client = SessionClient::Start(std::move(options), std::move(hello), recorder);
  EXPECT_TRUE(client.ok()) << client.status();
  return client.ok() ? *std::move(client) : nullptr;
}

WorkerStatus Status(uint64_t sequence) {
  WorkerStatus status;
  status.sequence = sequence;
  return status;
}

TEST(SessionClient, AttachesSendsAndReceivesInOrder) {
  FakeFleet fleet;
  Recorder recorder;
  const auto client = StartClient(Options(fleet.address()), recorder);
  recorder.Await("welcome");
  EXPECT_EQ(fleet.AwaitHellos(1)[0].self().incarnation(), 7u);
  client->Send(kSelf, Status(1));
  EXPECT_EQ(fleet.AwaitRequests(1)[0].status().sequence(), 1u);
  for (Epoch epoch = 1; epoch <= 20; ++epoch) fleet.Say(ToProto(3, Pause{epoch}));
  for (Epoch epoch = 1; epoch <= 20; ++epoch) {
    EXPECT_EQ(recorder.Await("pause"), absl::StrCat("pause ", epoch, " of term 3"));
  }
  client->Shutdown();
  EXPECT_THAT(recorder.Calls(), ElementsAre());
}

TEST(SessionClient, AttachedComesBeforeTheFirstDirective) {
  FakeFleet fleet;
  Recorder recorder;
  const auto client = StartClient(Options(fleet.address()), recorder);
  fleet.Say(ToProto(1, Pause{1}));
  EXPECT_THAT(recorder.AwaitCalls(3), ElementsAre("attached", "welcome", "pause 1 of term 1"));
}

TEST(SessionClient, StatusesCoalesceAndSuspicionsDoNot) {
  FakeFleet fleet;
  fleet.read_delay = absl::Milliseconds(2);
  Recorder recorder;
  SessionClientOptions options = Options(fleet.address());
  options.max_pending_suspicions = 3;
  const auto client = StartClient(options, recorder);
  recorder.Await("welcome");
  // Large enough that flow control stops the stream before all are sent.
  constexpr uint64_t kStatuses = 2'000;
  WorkerStatus status;
  status.failure = std::string(4'000, 'x');
  for (status.sequence = 1; status.sequence <= kStatuses; ++status.sequence) {
    client->Send(kSelf, status);
  }
  for (Epoch epoch = 1; epoch <= 2; ++epoch) client->Send(kSelf, Suspicion{.epoch = epoch});
  std::vector<v1::SessionRequest> requests;
  for (size_t count = 1;; ++count) {
    requests = fleet.AwaitRequests(count);
    const auto& last = requests.back();
    if (last.has_status() && last.status().sequence() == kStatuses) break;
    ASSERT_LT(requests.size(), size_t{kStatuses});
  }
  EXPECT_LT(requests.size(), size_t{kStatuses});
  uint64_t newest = 0;
  int suspicions = 0;
  for (const v1::SessionRequest& request : requests) {
    if (request.has_suspicion()) {
      ++suspicions;
      continue;
    }
    EXPECT_GT(request.status().sequence(), newest);
    newest = request.status().sequence();
  }
  EXPECT_EQ(suspicions, 2);
}

TEST(SessionClient, ReconnectsWhenTheStreamBreaks) {
  FakeFleet fleet;
  Recorder recorder;
  const auto client = StartClient(Options(fleet.address()), recorder);
  recorder.Await("welcome");
  fleet.HangUpAtNextMessage();
  client->Send(kSelf, Status(1));
  EXPECT_THAT(recorder.Await("detached"), HasSubstr("hung up"));
  recorder.Await("welcome");
  client->Send(kSelf, Status(2));
  EXPECT_EQ(fleet.AwaitRequests(2)[1].status().sequence(), 2u);
  EXPECT_EQ(fleet.AwaitHellos(2)[1].self().incarnation(), 7u);
}

TEST(SessionClient, FindsTheCoordinatorAgainAfterItsRestart) {
  auto fleet = std::make_unique<FakeFleet>();
  const std::string address = fleet->address();
  Recorder recorder;
  SessionClientOptions options = Options(address);
  options.first_attach_timeout = absl::Milliseconds(300);  // of no account once attached
  const auto client = StartClient(options, recorder);
  recorder.Await("welcome");
  fleet.reset();
  EXPECT_THAT(recorder.Await("detached"), HasSubstr(address));
  LetTimePass(options.first_attach_timeout + absl::Milliseconds(100), "outlives that timeout");
  FakeFleet restarted(address);
  recorder.Await("welcome");
  client->Send(kSelf, Status(9));
  EXPECT_EQ(restarted.AwaitRequests(1)[0].status().sequence(), 9u);
}

TEST(SessionClient, WordsOfAnotherIncarnationOrWhileDetachedAreDropped) {
  FakeFleet fleet;
  Recorder recorder;
  const auto client = StartClient(Options(fleet.address()), recorder);
  client->Send(kSelf, Status(1));  // may be before the attach: then dropped
  recorder.Await("welcome");
  client->Send(Incarnation{8}, Status(2));
  client->Send(Incarnation{8}, Suspicion{.epoch = 2});
  client->Send(kSelf, Status(3));
  std::vector<v1::SessionRequest> requests;
  for (size_t count = 1; requests.empty() || requests.back().status().sequence() != 3; ++count) {
    requests = fleet.AwaitRequests(count);
  }
  for (const v1::SessionRequest& request : requests) {
    EXPECT_TRUE(request.has_status());
    EXPECT_NE(request.status().sequence(), 2u);
  }
}

TEST(SessionClient, RejoinAttachesAsANewIncarnation) {
  FakeFleet fleet;
  Recorder recorder;
  std::atomic<uint64_t> incarnation = 7;
  std::unique_ptr<SessionClient> client;
  absl::Mutex made;
  recorder.on_evicted = [&] {
    absl::MutexLock lock(&made);
    incarnation = 8;
    client->Rejoin();
  };
  {
    absl::MutexLock lock(&made);
    client =
        StartClient(Options(fleet.address()), recorder, [&] { return SomeHello(incarnation); });
  }
  recorder.Await("welcome");
  fleet.Say(ToProto(1, Evicted{.reason = "was silent"}));
  recorder.Await("evicted");
  EXPECT_EQ(fleet.AwaitHellos(2)[1].self().incarnation(), 8u);
  recorder.Await("welcome");
  client->Send(kSelf, Status(1));
  client->Send(Incarnation{8}, Status(2));
  EXPECT_EQ(fleet.AwaitRequests(1)[0].status().sequence(), 2u);
}

TEST(SessionClient, GivesUpWhenNobodyIsThereAtFirst) {
  std::string address;
  { address = FakeFleet().address(); }
  Recorder recorder;
  SessionClientOptions options = Options(address);
  options.first_attach_timeout = absl::Milliseconds(200);
  const auto client = StartClient(options, recorder);
  EXPECT_THAT(recorder.Await("detached"), HasSubstr(address));
  EXPECT_THAT(recorder.Await("gave up"),
              testing::AllOf(HasSubstr("no coordinator was reached within 200ms; is muster-"),
                             HasSubstr(address)));
}

TEST(SessionClient, GivesUpWhenEverySessionWouldBeRefused) {
  FakeFleet fleet;
  fleet.Refuse(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "hello.self.name: must be nice"));
  Recorder recorder;
  const auto client = StartClient(Options(fleet.address()), recorder);
  EXPECT_THAT(recorder.Await("gave up"), HasSubstr("hello.self.name: must be nice"));
  EXPECT_EQ(fleet.AwaitHellos(1).size(), 1u);
}

TEST(SessionClient, KeepsTryingWhileTheCoordinatorIsFull) {
  FakeFleet fleet;
  fleet.Refuse(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full"));
  Recorder recorder;
  const auto client = StartClient(Options(fleet.address()), recorder);
  fleet.AwaitHellos(3);
  fleet.Refuse(grpc::Status::OK);
  recorder.Await("welcome");
}

TEST(SessionClient, ACoordinatorThatDoesNotAnswerIsLeftInTime) {
  FakeFleet fleet;
  fleet.mute = true;
  Recorder recorder;
  SessionClientOptions options = Options(fleet.address());
  options.attach_timeout = absl::Milliseconds(100);
  const auto client = StartClient(options, recorder);
  EXPECT_THAT(recorder.Await("detached"), HasSubstr("no answer within 100ms"));
  recorder.Await("detached");  // and tries again
}

TEST(SessionClient, AnUnreadableDirectiveEndsTheSessionNotTheWorker) {
  FakeFleet fleet;
  Recorder recorder;
  const auto client = StartClient(Options(fleet.address()), recorder);
  recorder.Await("welcome");
  fleet.Say(ToProto(1, Pause{.epoch = 0}));
  EXPECT_THAT(recorder.Await("detached"), HasSubstr("pause.epoch: is missing"));
  recorder.Await("welcome");
}

TEST(SessionClient, ShutdownSendsWhatIsPending) {
  FakeFleet fleet;
  Recorder recorder;
  auto client = StartClient(Options(fleet.address()), recorder);
  recorder.Await("welcome");
  client->Send(kSelf, Suspicion{.epoch = 4});
  client->Send(kSelf, Status(5));
  client->Shutdown(kTestPatience);
  const std::vector<v1::SessionRequest> requests = fleet.AwaitRequests(2);
  EXPECT_EQ(requests[0].suspicion().epoch(), 4u);
  EXPECT_EQ(requests[1].status().sequence(), 5u);
}

TEST(SessionClient, ShutdownAtAnyMoment) {
  FakeFleet fleet;
  for (int i = 0; i < 30; ++i) {
    Recorder recorder;
    auto client = StartClient(Options(fleet.address()), recorder);
    LetTimePass(absl::Microseconds(200 * i), "another moment each time");
    client->Send(kSelf, Status(1));
    client.reset();
    const size_t calls = recorder.Calls().size();
    LetTimePass(absl::Milliseconds(1), "a late call would come now");
    EXPECT_EQ(recorder.Calls().size(), calls);
  }
}

TEST(SessionClient, ABadAddressIsRefusedAtOnce) {
  Recorder recorder;
  const auto client = SessionClient::Start(
      Options("nowhere"), [] { return SomeHello(); }, recorder);
  EXPECT_EQ(client.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace muster
