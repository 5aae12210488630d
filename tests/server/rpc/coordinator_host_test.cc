// The host alone: order of events, and what happens when a decision cannot be written down.
#include "server/rpc/coordinator_host.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "base/control/rules.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

// Fails from the N-th record on.
class FailingStore final : public RecordStore {
 public:
  explicit FailingStore(int records) : left_(records) {}
  absl::StatusOr<PersistentState> Load(const PersistentLimits& limits) override {
    return inner_.Load(limits);
  }
  absl::StatusOr<std::map<JobId, StoredDescription>> LoadDescriptions() override {
    return inner_.LoadDescriptions();
  }
  absl::Status Append(const PersistentRecord& record) override {
    if (left_-- <= 0) return absl::UnavailableError("disk full");
    return inner_.Append(record);
  }
  absl::Status PutDescription(const JobId& job, const StoredDescription& description) override {
    return inner_.PutDescription(job, description);
  }
  absl::Status DropDescription(const JobId& job) override { return inner_.DropDescription(job); }

 private:
  MemoryStore inner_;
  int left_;
};

class RecordingLink final : public SessionLink {
 public:
  void Send(std::shared_ptr<const v1::SessionResponse> directive) override {
    sent.push_back(directive->directive_case());
  }
  void Close(const absl::Status& reason) override { closed = reason; }
  std::vector<int> sent;
  absl::Status closed;
};

Hello SomeHello() {
  Hello hello;
  hello.self.name = "worker-0";
  hello.self.incarnation = Incarnation{7};
  hello.protocol_version = kControlProtocolVersion;
  return hello;
}

v1::SubmitJobRequest SomeJob() {
  v1::SubmitJobRequest request;
  request.mutable_description()->set_name("job");
  request.mutable_description()->mutable_workers()->set_start_timeout_ms(0);
  request.mutable_description()->mutable_model()->mutable_mlp();
  auto* idx = request.mutable_description()->mutable_data()->mutable_idx();
  idx->set_train_images("i");
  idx->set_train_labels("l");
  auto* training = request.mutable_description()->mutable_training();
  training->set_steps(1);
  training->set_global_batch(1);
  training->set_micro_batch(1);
  training->mutable_optimizer()->mutable_sgd();
  training->mutable_learning_rate()->set_peak(1);
  return request;
}

WorkerStatus Answer(uint64_t sequence, Epoch epoch) {
  WorkerStatus status;
  status.sequence = sequence;
  status.answered_epoch = status.seen_epoch = epoch;
  status.phase = epoch == 0 ? WorkerPhase::kIdle : WorkerPhase::kQuiesced;
  return status;
}

// With the store failing at its N-th record, no directive that depends on that record is sent.
// N rises until nothing fails any more.
TEST(CoordinatorHost, NothingIsSaidThatCouldNotBeWrittenDown) {
  bool failed = true;
  int records = 1;  // the start of the term must succeed, or there is no host
  for (; failed && records < 20; ++records) {
    failed = false;
    FailingStore store(records);
    PosixFileSystem files;
    const std::unique_ptr<Logger> logger = MakeSilentLogger();
    CoordinatorHostOptions options;
    options.on_fatal = [&](const absl::Status& status) {
      EXPECT_FALSE(failed) << "told twice";
      failed = true;
    };
    auto host = CoordinatorHost::Start(options, store, files, *logger, nullptr);
    ASSERT_TRUE(host.ok()) << host.status();
    const auto link = std::make_shared<RecordingLink>();
    (*host)->OpenSession(SomeHello(), link);
    (*host)->SubmitJob(SomeJob()).IgnoreError();
    (*host)->OnStatus(Incarnation{7}, link.get(), Answer(1, 0));
    const bool proposed =
        std::count(link->sent.begin(), link->sent.end(), v1::SessionResponse::kPropose) > 0;
    if (proposed) {
      WorkerStatus answer = Answer(2, 1);
      answer.job = (*host)->ListJobs({})->jobs(0).id();
      (*host)->OnStatus(Incarnation{7}, link.get(), answer);
    }
    const bool activated =
        std::count(link->sent.begin(), link->sent.end(), v1::SessionResponse::kActivate) > 0;
    // Records in order: term, job, epoch, decision.
    EXPECT_EQ(proposed, records >= 3);
    EXPECT_EQ(activated, records >= 4);
    EXPECT_EQ(failed, records < 4);
    (*host)->Stop();
    EXPECT_EQ(link->closed.code(), absl::StatusCode::kUnavailable);
  }
  EXPECT_EQ(records, 5);
}

// Each line says where the job is when it is written, and after its end nothing of it.
TEST(CoordinatorHost, LogLinesCarryTheNewestStep) {
  absl::Mutex mutex;
  std::vector<std::string> lines;
  Logger logger({.process = "coordinator", .write = [&](LogLevel, absl::string_view line) {
                   absl::MutexLock lock(&mutex);
                   lines.emplace_back(line);
                 }});
  // The newest line with both; empty if there is none.
  const auto line = [&](const std::string& event, const std::string& text) -> std::string {
    absl::MutexLock lock(&mutex);
    for (auto it = lines.rbegin(); it != lines.rend(); ++it) {
      if (absl::StrContains(*it, event) && absl::StrContains(*it, text)) return *it;
    }
    return "";
  };
  MemoryStore store;
  PosixFileSystem files;
  auto host = CoordinatorHost::Start({}, store, files, logger, nullptr);
  ASSERT_TRUE(host.ok()) << host.status();
  const auto link = std::make_shared<RecordingLink>();
  (*host)->OpenSession(SomeHello(), link);
  (*host)->SubmitJob(SomeJob()).IgnoreError();
  const std::string id = (*host)->ListJobs({})->jobs(0).id();
  (*host)->OnStatus(Incarnation{7}, link.get(), Answer(1, 0));
  WorkerStatus status = Answer(2, 1);
  status.job = id;
  (*host)->OnStatus(Incarnation{7}, link.get(), status);
  EXPECT_THAT(line("view_decided", "epoch 1"), HasSubstr("\"epoch\":1,\"step\":0,"));

  status.sequence = 3;
  status.active_epoch = 1;
  status.phase = WorkerPhase::kRunning;
  status.progress = Progress{.step = 41, .loss = 1};
  (*host)->OnStatus(Incarnation{7}, link.get(), status);
  // Of no view of today.
  status.sequence = 4;
  status.active_epoch = 0;
  status.progress = Progress{.step = 45, .loss = 1};
  (*host)->OnStatus(Incarnation{7}, link.get(), status);
  v1::CancelJobRequest cancel;
  cancel.set_job_id(id);
  ASSERT_TRUE((*host)->CancelJob(cancel).ok());
  EXPECT_THAT(line("job_state", "cancelled"), HasSubstr("\"epoch\":1,\"step\":41,"));
  (*host)->SubmitJob(SomeJob()).IgnoreError();
  EXPECT_THAT(line("job_state", "is queued"), HasSubstr("\"epoch\":0,\"step\":0,"));
  (*host)->Stop();
}

TEST(CoordinatorHost, WordsOfAReplacedSessionAreIgnored) {
  MemoryStore store;
  PosixFileSystem files;
  const std::unique_ptr<Logger> logger = MakeSilentLogger();
  auto host = CoordinatorHost::Start({}, store, files, *logger, nullptr);
  ASSERT_TRUE(host.ok());
  const auto older = std::make_shared<RecordingLink>();
  const auto newer = std::make_shared<RecordingLink>();
  (*host)->OpenSession(SomeHello(), older);
  (*host)->OpenSession(SomeHello(), newer);
  EXPECT_EQ(older->closed.code(), absl::StatusCode::kAborted);
  WorkerStatus status = Answer(5, 0);
  status.drain_requested = true;
  (*host)->OnStatus(Incarnation{7}, older.get(), status);
  (*host)->SessionEnded(Incarnation{7}, older.get(), "test");
  ASSERT_EQ((*host)->ListMembers().members_size(), 1);
  EXPECT_TRUE((*host)->ListMembers().members(0).attached());
  EXPECT_TRUE(newer->closed.ok());
  (*host)->SessionEnded(Incarnation{7}, newer.get(), "test");
  EXPECT_FALSE((*host)->ListMembers().members(0).attached());
  (*host)->Stop();
}

}  // namespace
}  // namespace muster
