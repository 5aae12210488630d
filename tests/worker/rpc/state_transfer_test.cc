// A worker's server and a learner, over loopback.
#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/crc32c.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "muster/v1/worker.grpc.pb.h"
#include "proto/rpc/server.h"
#include "tests/wait_until.h"
#include "worker/rpc/state_learner.h"
#include "worker/rpc/worker_server.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

LearnRequest Request() {
  return {.job = "job-1",
          .fleet_id = "fleet",
          .learner = Incarnation{5},
          .source = Incarnation{6},
          .layout_fingerprint = 0xfeed};
}

std::vector<float> Numbers(int64_t count, float first) {
  std::vector<float> numbers(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) numbers[i] = first + static_cast<float>(i);
  return numbers;
}

// A source whose steps the test makes.
class FakeSource final : public StateSource {
 public:
  FakeSource(int arrays, int64_t elements, Step step) {
    header_ = {.tag = {.branch = 1, .step = step, .epoch = 2},
               .update_count = step,
               .array_count = arrays,
               .array_elements = elements};
    for (int i = 0; i < arrays; ++i) arrays_.push_back(Numbers(elements, 1'000.0f * i));
  }

  absl::StatusOr<std::unique_ptr<StateFeed>> Open(const LearnRequest& request) override {
    absl::MutexLock lock(&mutex_);
    request_ = request;
    if (!refusal.ok()) return refusal;
    ++open_;
    return std::unique_ptr<StateFeed>(new Feed(*this));
  }

  void AddStep(Step step) {
    StepItem item;
    item.record = {.step = step, .epoch = 2, .loss_sum = 1.5 * step, .samples = 32};
    item.tag = {.branch = 1, .step = step, .epoch = 2};
    item.stable = {.branch = 1, .step = step - 1, .epoch = 2};
    item.gradient = std::make_shared<const std::vector<float>>(
        Numbers(header_.array_elements, static_cast<float>(-step)));
    Add(item);
  }
  void Add(FeedItem item) {
    absl::MutexLock lock(&mutex_);
    items_.push_back(std::move(item));
  }
  void End(absl::Status status) {
    absl::MutexLock lock(&mutex_);
    end_ = std::move(status);
  }
  bool AwaitFeeds(int count) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return open_ == count; };
    return mutex_.AwaitWithTimeout(absl::Condition(&there), kTestPatience);
  }
  LearnRequest request() {
    absl::MutexLock lock(&mutex_);
    return request_;
  }

  absl::Status refusal;  // set before learners come

 private:
  class Feed final : public StateFeed {
   public:
    explicit Feed(FakeSource& source) : source_(source) {}
    ~Feed() override {
      absl::MutexLock lock(&source_.mutex_);
      --source_.open_;
    }
    const SnapshotHeader& header() const override { return source_.header_; }
    absl::Span<const float> Array(int index) const override { return source_.arrays_[index]; }
    absl::StatusOr<std::optional<FeedItem>> Next(absl::Time deadline) override {
      absl::MutexLock lock(&source_.mutex_);
      const auto there = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return next_ < source_.items_.size() || !source_.end_.ok();
      };
      if (!source_.mutex_.AwaitWithDeadline(absl::Condition(&there), deadline)) {
        return std::optional<FeedItem>();
      }
      if (next_ == source_.items_.size()) return source_.end_;
      return std::optional<FeedItem>(source_.items_[next_++]);
    }

   private:
    FakeSource& source_;
    size_t next_ = 0;
  };

  SnapshotHeader header_;
  std::vector<std::vector<float>> arrays_;
  absl::Mutex mutex_;
  std::vector<FeedItem> items_ ABSL_GUARDED_BY(mutex_);
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
  LearnRequest request_ ABSL_GUARDED_BY(mutex_);
  int open_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Collects everything.
class Collector final : public StateSink {
 public:
  absl::Status OnHeader(const SnapshotHeader& got) override {
    absl::MutexLock lock(&mutex);
    header = got;
    arrays.resize(got.array_count);
    return absl::OkStatus();
  }
  absl::Status OnSnapshotChunk(int array, int64_t offset, absl::Span<const float> values) override {
    if (delay > absl::ZeroDuration()) LetTimePass(delay, "a slow sink");
    absl::MutexLock lock(&mutex);
    EXPECT_EQ(static_cast<int64_t>(arrays[array].size()), offset);
    arrays[array].insert(arrays[array].end(), values.begin(), values.end());
    ++chunks;
    return chunk_status;
  }
  absl::Status OnSnapshotDone() override {
    absl::MutexLock lock(&mutex);
    complete = true;
    return absl::OkStatus();
  }
  absl::Status OnStep(StepItem item) override {
    absl::MutexLock lock(&mutex);
    steps.push_back(std::move(item));
    return absl::OkStatus();
  }
  absl::Status OnStable(const StateTag& tag) override {
    absl::MutexLock lock(&mutex);
    stable.push_back(tag);
    return absl::OkStatus();
  }
  void OnEnded(const absl::Status& reason) override {
    absl::MutexLock lock(&mutex);
    EXPECT_FALSE(ended.has_value());
    ended = reason;
  }

  template <typename Predicate>
  bool Await(Predicate predicate) {
    absl::MutexLock lock(&mutex);
    return mutex.AwaitWithTimeout(absl::Condition(&predicate), kTestPatience);
  }
  absl::Status AwaitEnd() {
    EXPECT_TRUE(Await([this] { return ended.has_value(); }));
    absl::MutexLock lock(&mutex);
    return ended.value_or(absl::OkStatus());
  }

  // Set before the learner starts.
  absl::Duration delay;
  absl::Status chunk_status;

  absl::Mutex mutex;
  SnapshotHeader header;
  std::vector<std::vector<float>> arrays;
  int chunks = 0;
  bool complete = false;
  std::vector<StepItem> steps;
  std::vector<StateTag> stable;
  std::optional<absl::Status> ended;
};

// Learners do not ask for operations.
class NoOperations final : public OperationSource {
 public:
  absl::StatusOr<MeshRecord> RecentOperations(Incarnation, const JobId&) override {
    return absl::FailedPreconditionError("there is no mesh");
  }
};
NoOperations no_operations;

std::unique_ptr<WorkerServer> Serve(StateSource& source, WorkerServerOptions options = {}) {
  auto server = WorkerServer::Start(options, source, no_operations);
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

StateLearnerOptions LearnerOptions(const std::string& address, int arrays, int64_t elements) {
  StateLearnerOptions options;
  options.source_address = address;
  options.request = Request();
  options.expected_array_count = arrays;
  options.expected_array_elements = elements;
  return options;
}

TEST(StateTransfer, TenMegabytesArriveWholeThenStepsFollow) {
  constexpr int64_t kElements = 1'300'000;  // 2 arrays: 10.4 MB, last chunks not full
  FakeSource source(2, kElements, /*step=*/40);
  const auto server = Serve(source);
  Collector sink;
  sink.delay = absl::Milliseconds(3);  // slower than the source
  StateLearner learner(LearnerOptions(server->address(), 2, kElements), sink);
  ASSERT_TRUE(sink.Await([&] { return sink.complete; }));
  source.AddStep(41);
  source.AddStep(42);
  source.Add(StableItem{{.branch = 1, .step = 42, .epoch = 2}});
  ASSERT_TRUE(sink.Await([&] { return !sink.stable.empty(); }));

  EXPECT_EQ(source.request().layout_fingerprint, 0xfeedu);
  EXPECT_EQ(source.request().learner, Incarnation{5});
  absl::MutexLock lock(&sink.mutex);
  EXPECT_EQ(sink.header.tag.step, 40);
  EXPECT_EQ(sink.arrays[0], Numbers(kElements, 0));
  EXPECT_EQ(sink.arrays[1], Numbers(kElements, 1'000));
  ASSERT_EQ(sink.steps.size(), 2u);
  EXPECT_EQ(sink.steps[1].record.step, 42);
  EXPECT_EQ(sink.steps[1].record.loss_sum, 63);
  EXPECT_EQ(sink.steps[1].tag.step, 42);
  EXPECT_EQ(sink.steps[1].stable.step, 41);
  EXPECT_EQ(*sink.steps[1].gradient, Numbers(kElements, -42));
  EXPECT_EQ(sink.stable[0].step, 42);
}

TEST(StateTransfer, ArraysOfNoElementsWork) {
  FakeSource source(3, 0, 0);
  const auto server = Serve(source);
  Collector sink;
  StateLearner learner(LearnerOptions(server->address(), 3, 0), sink);
  source.AddStep(1);
  ASSERT_TRUE(sink.Await([&] { return sink.steps.size() == 1; }));
  EXPECT_TRUE(sink.complete);
}

TEST(StateTransfer, CancelEndsBothSides) {
  FakeSource source(1, 10, 0);
  const auto server = Serve(source);
  Collector sink;
  StateLearner learner(LearnerOptions(server->address(), 1, 10), sink);
  ASSERT_TRUE(sink.Await([&] { return sink.complete; }));
  learner.Cancel();
  EXPECT_EQ(sink.AwaitEnd().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(source.AwaitFeeds(0));
}

TEST(StateTransfer, ASourceThatStopsIsUnavailable) {
  FakeSource source(4, 2'000'000, 0);
  auto server = Serve(source);
  Collector sink;
  sink.delay = absl::Milliseconds(1);
  StateLearner learner(LearnerOptions(server->address(), 4, 2'000'000), sink);
  ASSERT_TRUE(sink.Await([&] { return sink.chunks > 2; }));
  server->Shutdown();
  EXPECT_EQ(sink.AwaitEnd().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(sink.complete);
}

TEST(StateTransfer, NobodyThereIsUnavailableAndNamesTheAddress) {
  std::string address;
  {
    FakeSource source(1, 1, 0);
    address = Serve(source)->address();
  }
  Collector sink;
  StateLearner learner(LearnerOptions(address, 1, 1), sink);
  const absl::Status ended = sink.AwaitEnd();
  EXPECT_EQ(ended.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(ended.message()), HasSubstr("source " + address));
}

TEST(StateTransfer, TheSourcesRefusalAndEndComeThrough) {
  FakeSource source(1, 10, 0);
  source.refusal = absl::FailedPreconditionError("the layout is another one");
  const auto server = Serve(source);
  {
    Collector sink;
    StateLearner learner(LearnerOptions(server->address(), 1, 10), sink);
    const absl::Status ended = sink.AwaitEnd();
    EXPECT_EQ(ended.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(ended.message()), HasSubstr("the layout is another one"));
  }
  source.refusal = absl::OkStatus();
  Collector sink;
  StateLearner learner(LearnerOptions(server->address(), 1, 10), sink);
  ASSERT_TRUE(sink.Await([&] { return sink.complete; }));
  source.End(absl::ResourceExhaustedError("the learner is too slow"));
  EXPECT_EQ(sink.AwaitEnd().code(), absl::StatusCode::kResourceExhausted);
}

TEST(StateTransfer, TheSinksErrorEndsIt) {
  FakeSource source(1, 10, 0);
  const auto server = Serve(source);
  Collector sink;
  sink.chunk_status = absl::ResourceExhaustedError("no memory");
  StateLearner learner(LearnerOptions(server->address(), 1, 10), sink);
  EXPECT_EQ(sink.AwaitEnd().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(source.AwaitFeeds(0));
}

TEST(StateTransfer, LearnersAreLimited) {
  FakeSource source(1, 10, 0);
  WorkerServerOptions options;
  options.max_learners = 2;
  const auto server = Serve(source, options);
  Collector sinks[3];
  std::vector<std::unique_ptr<StateLearner>> learners;
  for (int i = 0; i < 2; ++i) {
    learners.push_back(
        std::make_unique<StateLearner>(LearnerOptions(server->address(), 1, 10), sinks[i]));
    ASSERT_TRUE(sinks[i].Await([&] { return sinks[i].complete; }));
  }
  learners.push_back(
      std::make_unique<StateLearner>(LearnerOptions(server->address(), 1, 10), sinks[2]));
  EXPECT_EQ(sinks[2].AwaitEnd().code(), absl::StatusCode::kResourceExhausted);
}

TEST(StateTransfer, AnotherSizeThanExpectedIsRefusedBeforeAnyMemoryIsTaken) {
  FakeSource source(1, 10, 0);
  const auto server = Serve(source);
  Collector sink;
  StateLearner learner(LearnerOptions(server->address(), 1, 11), sink);
  const absl::Status ended = sink.AwaitEnd();
  EXPECT_EQ(ended.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(ended.message()),
              HasSubstr("expected 1 arrays of 11 elements, the source has 1 of 10"));
  EXPECT_TRUE(sink.arrays.empty());
}

TEST(WorkerServer, APortInUseIsAnError) {
  FakeSource source(1, 1, 0);
  const auto server = Serve(source);
  WorkerServerOptions options;
  options.listen_address = server->address();
  const absl::Status status = WorkerServer::Start(options, source, no_operations).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(server->address()));
}

// ---- a source that lies ------------------------------------------------------------------------

// Sends these messages, then waits for the learner to go.
class ScriptedSource final : public v1::StateTransfer::Service {
 public:
  explicit ScriptedSource(std::vector<v1::LearnResponse> script) : script_(std::move(script)) {
    running_ = *StartServer({.listen_address = "127.0.0.1:0", .services = {this}});
  }
  ~ScriptedSource() override { ShutdownServer(*running_.server, absl::ZeroDuration()); }
  const std::string& address() const { return running_.address; }
  grpc::Status Learn(grpc::ServerContext* context, const v1::LearnRequest* request,
                     grpc::ServerWriter<v1::LearnResponse>* writer) override {
    for (const v1::LearnResponse& response : script_) writer->Write(response);
    EXPECT_TRUE(WaitUntil([context] { return context->IsCancelled(); }));
    return grpc::Status::CANCELLED;
  }

 private:
  const std::vector<v1::LearnResponse> script_;
  RunningServer running_;
};

v1::LearnResponse Header(int arrays = 1, int64_t elements = 4) {
  v1::LearnResponse response;
  response.mutable_header()->mutable_tag()->set_step(7);
  response.mutable_header()->set_array_count(arrays);
  response.mutable_header()->set_array_elements(elements);
  return response;
}

template <typename Chunk>
void Fill(Chunk& chunk, int64_t offset, int count) {
  chunk.set_offset(offset);
  chunk.set_data(std::string(static_cast<size_t>(count) * 4, '\1'));
  chunk.set_crc32c(Crc32c(chunk.data()));
}
v1::LearnResponse Snapshot(int array, int64_t offset, int count) {
  v1::LearnResponse response;
  response.mutable_snapshot()->set_array(array);
  Fill(*response.mutable_snapshot(), offset, count);
  return response;
}
v1::LearnResponse Gradient(Step step, int64_t offset, int count) {
  v1::LearnResponse response;
  response.mutable_gradient()->set_step(step);
  Fill(*response.mutable_gradient(), offset, count);
  return response;
}
v1::LearnResponse Record(Step step, Step tag_step) {
  v1::LearnResponse response;
  response.mutable_record()->mutable_record()->set_step(step);
  response.mutable_record()->mutable_tag()->set_step(tag_step);
  return response;
}

absl::Status LearnFrom(std::vector<v1::LearnResponse> script) {
  ScriptedSource source(std::move(script));
  Collector sink;
  StateLearner learner(LearnerOptions(source.address(), 1, 4), sink);
  return sink.AwaitEnd();
}

TEST(StateLearner, EverythingOutOfOrderIsDataLoss) {
  v1::LearnResponse flipped = Snapshot(0, 0, 4);
  (*flipped.mutable_snapshot()->mutable_data())[5] ^= 1;
  v1::LearnResponse ragged = Snapshot(0, 0, 4);
  ragged.mutable_snapshot()->mutable_data()->pop_back();
  v1::LearnResponse negative = Header();
  negative.mutable_header()->mutable_tag()->set_step(-1);
  v1::LearnResponse stable;
  stable.mutable_stable();
  const std::vector<std::pair<std::vector<v1::LearnResponse>, std::string>> cases = {
      {{v1::LearnResponse()}, "empty message"},
      {{Snapshot(0, 0, 4)}, "before the header"},
      {{Header(), Header()}, "a second header"},
      {{Header(2)}, "expected 1 arrays of 4 elements, the source has 2 of 4"},
      {{Header(1, int64_t{1} << 60)}, "expected 1 arrays of 4 elements"},
      {{negative}, "header.tag.step"},
      {{Header(), Snapshot(0, 1, 3)}, "expected element 0 of array 0, got a chunk at 1"},
      {{Header(), Snapshot(1, 0, 4)}, "got a chunk at 0 of array 1"},
      {{Header(), Snapshot(-1, 0, 4)}, "got a chunk at 0 of array -1"},
      {{Header(), Snapshot(0, 0, 5)}, "goes beyond the 4 of an array"},
      {{Header(), Snapshot(0, 0, 0)}, "a whole number of f32 elements, got 0 bytes"},
      {{Header(), flipped}, "CRC-32C"},
      {{Header(), ragged}, "a whole number of f32 elements, got 15 bytes"},
      {{Header(), Snapshot(0, 0, 4), Snapshot(0, 0, 4)}, "after the end"},
      {{Header(), Gradient(8, 0, 4)}, "before the end of the snapshot"},
      {{Header(), Record(8, 8)}, "before the end of the snapshot"},
      {{Header(), stable}, "before the end of the snapshot"},
      {{Header(), Snapshot(0, 0, 4), Gradient(9, 0, 4)}, "of the gradient of step 8"},
      {{Header(), Snapshot(0, 0, 4), Gradient(8, 2, 2)}, "expected element 0"},
      {{Header(), Snapshot(0, 0, 4), Gradient(8, 0, 2), Gradient(8, 2, 3)}, "goes beyond"},
      {{Header(), Snapshot(0, 0, 4), Gradient(8, 0, 2), Record(8, 8)},
       "expected the record of step 8 after 4 elements, got the one of step 8 after 2"},
      {{Header(), Snapshot(0, 0, 4), Gradient(8, 0, 4), Record(9, 9)}, "got the one of step 9"},
      {{Header(), Snapshot(0, 0, 4), Gradient(8, 0, 4), Record(8, 9)}, "its tag is of step 9"},
      {{Header(), Snapshot(0, 0, 4), Gradient(8, 0, 4), Record(0, 0)}, "step.record.step"},
  };
  for (const auto& [script, message] : cases) {
    const absl::Status status = LearnFrom(script);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
    EXPECT_THAT(std::string(status.message()), HasSubstr("source 127.0.0.1:"));
  }
}

TEST(StateLearner, SilenceDuringTheSnapshotIsUnavailable) {
  ScriptedSource source({Header()});
  Collector sink;
  StateLearnerOptions options = LearnerOptions(source.address(), 1, 4);
  options.silence_timeout = absl::Milliseconds(100);
  StateLearner learner(options, sink);
  const absl::Status ended = sink.AwaitEnd();
  EXPECT_EQ(ended.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(ended.message()), HasSubstr("nothing came for 100ms"));
}

TEST(StateLearner, SilenceAfterTheSnapshotIsFine) {
  FakeSource source(1, 4, 0);
  const auto server = Serve(source);
  Collector sink;
  StateLearnerOptions options = LearnerOptions(server->address(), 1, 4);
  options.silence_timeout = absl::Milliseconds(50);
  StateLearner learner(options, sink);
  ASSERT_TRUE(sink.Await([&] { return sink.complete; }));
  LetTimePass(4 * options.silence_timeout, "silence is what this test is about");
  source.AddStep(1);
  EXPECT_TRUE(sink.Await([&] { return sink.steps.size() == 1; }));
}

TEST(StateLearner, DestructionAtAnyMoment) {
  FakeSource source(2, 300'000, 0);
  const auto server = Serve(source);
  for (int i = 0; i < 20; ++i) {
    Collector sink;
    {
      StateLearner learner(LearnerOptions(server->address(), 2, 300'000), sink);
      LetTimePass(absl::Microseconds(300 * i), "another moment each time");
    }
    EXPECT_TRUE(sink.ended.has_value());
  }
  EXPECT_TRUE(source.AwaitFeeds(0));
}

}  // namespace
}  // namespace muster
