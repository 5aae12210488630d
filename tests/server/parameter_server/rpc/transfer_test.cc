// Pushes and pulls on a real server, by generated code as any program has it.
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/parameter_server/rpc/test_server.h"
#include "tests/wait_until.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr uint64_t kIncarnation = 11;

std::string Bytes(const std::vector<float>& values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// One Transfer call.
class Stream {
 public:
  explicit Stream(TestServer& server) : stream_(server.stub().Transfer(&context_)) {}
  bool Write(const v1::TransferRequest& request) { return stream_->Write(request); }
  std::optional<v1::TransferResponse> Read() {
    v1::TransferResponse response;
    return stream_->Read(&response) ? std::optional(response) : std::nullopt;
  }
  grpc::Status End() {
    stream_->WritesDone();
    while (Read().has_value()) {
    }
    return stream_->Finish();
  }
  void Cancel() { context_.TryCancel(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::TransferRequest, v1::TransferResponse>> stream_;
};

class TransferTest : public ::testing::Test {
 protected:
  void Create(const v1::TableSpec& spec) {
    grpc::ClientContext context;
    v1::CreateTableRequest request;
    *request.mutable_spec() = spec;
    v1::CreateTableResponse response;
    const grpc::Status created = server_.stub().CreateTable(&context, request, &response);
    ASSERT_TRUE(created.ok()) << created.error_message();
    EXPECT_TRUE(response.created());
    Attach(kIncarnation);
  }
  void Attach(uint64_t incarnation) {
    grpc::ClientContext context;
    v1::AttachRequest request;
    request.set_table("t");
    request.mutable_contributor()->set_incarnation(incarnation);
    v1::AttachResponse response;
    const grpc::Status attached = server_.stub().Attach(&context, request, &response);
    ASSERT_TRUE(attached.ok()) << attached.error_message();
  }

  static v1::TransferRequest PushOfStep(int64_t step, const std::vector<float>& values) {
    v1::TransferRequest request;
    v1::Push& push = *request.mutable_push();
    push.set_table("t");
    push.mutable_contributor()->set_incarnation(kIncarnation);
    push.set_step(step);
    push.set_samples(1);
    request.set_data(Bytes(values));
    return request;
  }
  // The end of a call that sends just this.
  grpc::Status Send(const v1::TransferRequest& request) {
    Stream stream(server_);
    stream.Write(request);
    return stream.End();
  }
  std::vector<float> PullAll(int64_t version) {
    Stream stream(server_);
    v1::TransferRequest request;
    request.mutable_pull()->set_table("t");
    request.mutable_pull()->set_min_version(version);
    stream.Write(request);
    std::string bytes;
    while (const auto response = stream.Read()) {
      bytes += response->data();
      if (response->pulled().left() == 0) break;
    }
    EXPECT_TRUE(stream.End().ok());
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
    return values;
  }

  TestServer server_;
};

TEST_F(TransferTest, PushesAndPullsInOneStream) {
  Create(DenseSpec(128));
  Stream stream(server_);
  ASSERT_TRUE(stream.Write(PushOfStep(1, std::vector<float>(128, 2.0f))));
  const auto pushed = stream.Read();
  ASSERT_TRUE(pushed.has_value());
  EXPECT_EQ(pushed->pushed().version(), 1);
  EXPECT_FALSE(pushed->pushed().duplicate());
  v1::TransferRequest pull;
  pull.mutable_pull()->set_table("t");
  pull.mutable_pull()->set_offset(64);
  pull.mutable_pull()->set_count(2);
  ASSERT_TRUE(stream.Write(pull));
  const auto pulled = stream.Read();
  ASSERT_TRUE(pulled.has_value());
  EXPECT_EQ(pulled->pulled().version(), 1);
  EXPECT_EQ(pulled->pulled().left(), 0);
  EXPECT_EQ(pulled->data(), Bytes({-2, -2}));
  EXPECT_TRUE(stream.End().ok());
}

TEST_F(TransferTest, CountsAPushOnceThoughItsStreamBroke) {
  constexpr int kElements = 1 << 19;
  Create(DenseSpec(kElements));
  const std::vector<float> half(kElements / 2, 1.0f);
  v1::TransferRequest rest;
  rest.set_data(Bytes(half));
  {
    Stream broken(server_);
    ASSERT_TRUE(broken.Write(PushOfStep(1, half)));
    broken.Cancel();
    EXPECT_EQ(broken.End().error_code(), grpc::StatusCode::CANCELLED);
  }
  for (const bool duplicate : {false, true}) {
    Stream stream(server_);
    ASSERT_TRUE(stream.Write(PushOfStep(1, half)));
    ASSERT_TRUE(stream.Write(rest));
    const auto pushed = stream.Read();
    ASSERT_TRUE(pushed.has_value());
    EXPECT_EQ(pushed->pushed().version(), 1);
    EXPECT_EQ(pushed->pushed().duplicate(), duplicate);
    EXPECT_TRUE(stream.End().ok());
  }
  const std::vector<float> values = PullAll(1);
  ASSERT_EQ(values.size(), static_cast<size_t>(kElements));
  EXPECT_THAT(values, Each(-1.0f));
}

TEST_F(TransferTest, SaysWhatIsWrongWithAPush) {
  Create(DenseSpec(64));
  const std::vector<float> good(64, 1.0f);
  const auto expect = [&](const v1::TransferRequest& request, grpc::StatusCode code,
                          const std::string& says) {
    const grpc::Status status = Send(request);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(says));
  };
  v1::TransferRequest request = PushOfStep(1, good);
  request.mutable_push()->set_table("other");
  expect(request, grpc::StatusCode::NOT_FOUND, "there are: t");
  expect(PushOfStep(1, std::vector<float>(65)), grpc::StatusCode::INVALID_ARGUMENT, "260 bytes");
  // What came of it counts, as the beginning of this push.
  expect(PushOfStep(1, std::vector<float>(63, 1.0f)), grpc::StatusCode::INVALID_ARGUMENT,
         "1 elements");
  request = PushOfStep(1, good);
  request.mutable_data()->pop_back();
  expect(request, grpc::StatusCode::INVALID_ARGUMENT, "whole elements of f32");
  request = PushOfStep(1, good);
  request.mutable_push()->set_offset(32);
  request.mutable_push()->set_count(64);
  expect(request, grpc::StatusCode::OUT_OF_RANGE, "[0, 64)");
  request.mutable_push()->set_count(-1);
  expect(request, grpc::StatusCode::INVALID_ARGUMENT, "push.count");
  request = PushOfStep(1, good);
  request.mutable_push()->set_type(static_cast<v1::ElementType>(77));
  expect(request, grpc::StatusCode::INVALID_ARGUMENT, "push.type: must be f32, f16 or bf16");
  request = PushOfStep(1, good);
  request.mutable_push()->set_chunks(1);
  expect(request, grpc::StatusCode::INVALID_ARGUMENT, "dense");
  request = PushOfStep(1, good);
  request.add_rows(1);
  expect(request, grpc::StatusCode::INVALID_ARGUMENT, "dense");
  request = PushOfStep(1, good);
  request.clear_push();
  expect(request, grpc::StatusCode::INVALID_ARGUMENT, "first message");
  expect(PushOfStep(0, good), grpc::StatusCode::INVALID_ARGUMENT, "push.step");
  request = PushOfStep(1, good);
  request.mutable_push()->set_micro_batch(1);
  expect(request, grpc::StatusCode::INVALID_ARGUMENT, "micro");
  std::vector<float> bad = good;
  bad[5] = std::numeric_limits<float>::quiet_NaN();
  expect(PushOfStep(1, bad), grpc::StatusCode::INVALID_ARGUMENT, "w");
  // Nothing of it was added.
  EXPECT_TRUE(Send(PushOfStep(1, good)).ok());
  EXPECT_THAT(PullAll(1), Each(-1.0f));
}

TEST_F(TransferTest, FencesTheContributorThatWasReplaced) {
  Create(DenseSpec(64));
  Attach(kIncarnation + 1);
  const grpc::Status status = Send(PushOfStep(1, std::vector<float>(64, 1.0f)));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(TransferTest, EndsCallsThatWaitWhenTheirContributorIsReplacedOrRemoved) {
  Create(DenseSpec(64));
  Stream push(server_);
  ASSERT_TRUE(push.Write(PushOfStep(3, std::vector<float>(64, 1.0f))));
  Attach(kIncarnation + 1);
  EXPECT_EQ(push.End().error_code(), grpc::StatusCode::FAILED_PRECONDITION);

  Stream pull(server_);
  v1::TransferRequest request;
  request.mutable_pull()->set_table("t");
  request.mutable_pull()->mutable_contributor()->set_incarnation(kIncarnation + 1);
  ASSERT_TRUE(pull.Write(request));
  ASSERT_TRUE(pull.Read().has_value()) << "it is attached";
  request.mutable_pull()->set_min_version(5);
  ASSERT_TRUE(pull.Write(request));
  grpc::ClientContext context;
  v1::RemoveContributorRequest remove;
  remove.set_table("t");
  v1::RemoveContributorResponse removed;
  ASSERT_TRUE(server_.stub().RemoveContributor(&context, remove, &removed).ok());
  EXPECT_EQ(pull.End().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(TransferTest, EndsCallsThatWaitWhenTheTableIsDropped) {
  Create(DenseSpec(64));
  Stream stream(server_);
  v1::TransferRequest pull;
  pull.mutable_pull()->set_table("t");
  pull.mutable_pull()->set_min_version(5);
  ASSERT_TRUE(stream.Write(pull));
  grpc::ClientContext context;
  v1::DropTableRequest request;
  request.set_name("t");
  v1::DropTableResponse response;
  ASSERT_TRUE(server_.stub().DropTable(&context, request, &response).ok());
  const grpc::Status status = stream.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(TransferTest, AHalfClosedStreamWaitsForWhatItAskedFor) {
  Create(DenseSpec(64));
  Stream stream(server_);
  v1::TransferRequest pull;
  pull.mutable_pull()->set_table("t");
  pull.mutable_pull()->set_min_version(1);
  ASSERT_TRUE(stream.Write(pull));
  EXPECT_TRUE(Send(PushOfStep(1, std::vector<float>(64, 1.0f))).ok());
  const auto pulled = stream.Read();
  ASSERT_TRUE(pulled.has_value());
  EXPECT_EQ(pulled->pulled().version(), 1);
  EXPECT_TRUE(stream.End().ok());
}

TEST(TransferLimitsTest, HoldsLittleOfWhatMustWait) {
  constexpr int64_t kLimit = 1 << 20;
  constexpr int64_t kMessage = 4 << 20;
  ParameterServerOptions options;
  options.in_flight_bytes = kLimit;
  TestServer server(options);
  constexpr int64_t kElements = 16 << 20;
  const auto table = OpenTable({server.address()}, DenseSpec(kElements), 0, absl::Seconds(2));
  const std::vector<float> gradient(kElements, 1.0f);
  // Step 3 must wait for steps 1 and 2, which nobody pushes.
  EXPECT_FALSE(table->Push({.step = 3}, gradient).ok());
  EXPECT_LE(server.server().peak_in_flight_bytes(), kLimit + 2 * kMessage);
  // Others go on meanwhile and afterwards.
  EXPECT_TRUE(table->Push({.step = 1}, gradient).ok());
}

TEST(TransferLimitsTest, AReaderThatStopsReadingHoldsUpNobody) {
  TestServer server;
  constexpr int64_t kElements = 8 << 20;
  const auto table = OpenTable({server.address()}, DenseSpec(kElements), 0);
  Stream reader(server);
  v1::TransferRequest pull;
  pull.mutable_pull()->set_table("t");
  ASSERT_TRUE(reader.Write(pull));
  auto first = reader.Read();
  ASSERT_TRUE(first.has_value());
  std::vector<float> values(kElements);
  const std::vector<float> gradient(kElements, 1.0f);
  for (Step step = 1; step <= 4; ++step) {
    ASSERT_TRUE(table->PushPull({.step = step}, gradient, step, absl::MakeSpan(values)).ok());
  }
  EXPECT_EQ(values.back(), -4.0f);
  // What it pulled is of one version, however late it is read.
  int64_t left = first->pulled().left();
  while (left > 0) {
    const auto next = reader.Read();
    ASSERT_TRUE(next.has_value());
    EXPECT_EQ(next->pulled().version(), 0);
    EXPECT_EQ(next->data(), std::string(next->data().size(), '\0'));
    left = next->pulled().left();
  }
  EXPECT_TRUE(reader.End().ok());
}

TEST(TransferLimitsTest, RefusesMoreClientsMemoryAndTables) {
  ParameterServerOptions options;
  options.max_clients = 1;
  options.memory_bytes = 8 << 20;
  options.max_tables = 1;
  TestServer server(options);
  const auto large = TryOpen({server.address()}, DenseSpec(16 << 20), 0);
  EXPECT_EQ(large.status().code(), absl::StatusCode::kResourceExhausted) << large.status();
  const auto table = OpenTable({server.address()}, DenseSpec(64), 0, absl::Seconds(10));
  v1::TableSpec another = DenseSpec(64);
  another.set_name("u");
  EXPECT_EQ(TryOpen({server.address()}, another, 0).status().code(),
            absl::StatusCode::kResourceExhausted);
  Stream holder(server);  // the one client that moves data
  v1::TransferRequest pull;
  pull.mutable_pull()->set_table("t");
  ASSERT_TRUE(holder.Write(pull));
  ASSERT_TRUE(holder.Read().has_value());
  std::vector<float> values(64);
  const auto refused = table->Pull(0, absl::MakeSpan(values));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--max-clients"));
  EXPECT_TRUE(holder.End().ok());
  // Once the server has seen the end.
  EXPECT_TRUE(WaitUntil([&] { return table->Pull(0, absl::MakeSpan(values)).ok(); }));
}

TEST(TransferLimitsTest, ShutdownRefusesWhatWaits) {
  auto server = std::make_unique<TestServer>();
  const auto table = OpenTable({server->address()}, DenseSpec(64, 2), 0, absl::Seconds(2));
  Stream stream(*server);
  v1::TransferRequest pull;
  pull.mutable_pull()->set_table("t");
  ASSERT_TRUE(stream.Write(pull));
  ASSERT_TRUE(stream.Read().has_value()) << "the server has taken the call";
  pull.mutable_pull()->set_min_version(1);
  ASSERT_TRUE(stream.Write(pull));
  server->server().Shutdown(absl::Seconds(5));
  EXPECT_EQ(stream.End().error_code(), grpc::StatusCode::UNAVAILABLE);
  // A server that is gone is an error that names it, after the client's patience.
  std::vector<float> values(64);
  const auto pulled = table->Pull(0, absl::MakeSpan(values));
  EXPECT_TRUE(absl::IsUnavailable(pulled.status()) || absl::IsDeadlineExceeded(pulled.status()));
  EXPECT_THAT(std::string(pulled.status().message()), HasSubstr(server->address()));
}

}  // namespace
}  // namespace muster
