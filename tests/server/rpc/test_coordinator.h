// A coordinator on a free loopback port, and what tests need around it.
#ifndef MUSTER_TESTS_SERVER_RPC_TEST_COORDINATOR_H_
#define MUSTER_TESTS_SERVER_RPC_TEST_COORDINATOR_H_

#include <memory>
#include <string>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "muster/v1/coordinator.grpc.pb.h"
#include "proto/rpc/channel.h"
#include "server/rpc/coordinator_server.h"

namespace muster {

inline v1::JobDescription TestJob(const std::string& name = "job", int64_t steps = 10) {
  v1::JobDescription job;
  const bool parsed = google::protobuf::TextFormat::ParseFromString(R"(
    model { mlp { hidden: 8 } }
    data { idx { train_images: "/d/i" train_labels: "/d/l" } }
    training { global_batch: 32 micro_batch: 8
      optimizer { sgd { momentum: 0.9 } } learning_rate { peak: 0.1 } }
    workers { start_timeout_ms: 0 }
  )",
                                                                    &job);
  EXPECT_TRUE(parsed);
  job.set_name(name);
  job.mutable_training()->set_steps(steps);
  return job;
}

class TestCoordinator {
 public:
  explicit TestCoordinator(CoordinatorServerOptions options = {}, RecordStore* store = nullptr,
                           prometheus::Registry* registry = nullptr)
      : logger_(MakeSilentLogger()), store_(store != nullptr ? store : &own_store_) {
    if (options.listen_address == CoordinatorServerOptions().listen_address) {
      options.listen_address = "127.0.0.1:0";
    }
    absl::StatusOr<std::unique_ptr<CoordinatorServer>> started =
        CoordinatorServer::Start(std::move(options), *store_, files_, *logger_, registry);
    EXPECT_TRUE(started.ok()) << started.status();
    if (!started.ok()) return;
    server_ = *std::move(started);
    channel_ = NewChannel(server_->address());
    stub_ = v1::Coordinator::NewStub(channel_);
  }

  CoordinatorServer& server() { return *server_; }
  const std::string& address() const { return server_->address(); }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  v1::Coordinator::Stub& stub() { return *stub_; }

  // The job; its id is empty after an error, which is in `status`.
  v1::Job Submit(const v1::JobDescription& description, const std::string& request_id = "",
                 grpc::Status* status = nullptr) {
    grpc::ClientContext context;
    v1::SubmitJobRequest request;
    *request.mutable_description() = description;
    request.set_request_id(request_id);
    v1::SubmitJobResponse response;
    const grpc::Status got = stub_->SubmitJob(&context, request, &response);
    if (status != nullptr) {
      *status = got;
    } else {
      EXPECT_TRUE(got.ok()) << got.error_message();
    }
    return response.job();
  }

  v1::Job Get(const std::string& id) {
    grpc::ClientContext context;
    v1::GetJobRequest request;
    request.set_job_id(id);
    v1::GetJobResponse response;
    const grpc::Status got = stub_->GetJob(&context, request, &response);
    EXPECT_TRUE(got.ok()) << got.error_message();
    return response.job();
  }

  // `had_ended`: whether it had ended before.
  v1::Job Cancel(const std::string& id, bool had_ended = false) {
    grpc::ClientContext context;
    v1::CancelJobRequest request;
    request.set_job_id(id);
    v1::CancelJobResponse response;
    const grpc::Status got = stub_->CancelJob(&context, request, &response);
    EXPECT_TRUE(got.ok()) << got.error_message();
    EXPECT_EQ(response.had_ended(), had_ended);
    return response.job();
  }

  v1::ListMembersResponse Members() {
    grpc::ClientContext context;
    v1::ListMembersResponse response;
    const grpc::Status got = stub_->ListMembers(&context, {}, &response);
    EXPECT_TRUE(got.ok()) << got.error_message();
    return response;
  }

 private:
  const std::unique_ptr<Logger> logger_;
  PosixFileSystem files_;
  MemoryStore own_store_;
  RecordStore* const store_;
  std::unique_ptr<CoordinatorServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Coordinator::Stub> stub_;
};

}  // namespace muster

#endif  // MUSTER_TESTS_SERVER_RPC_TEST_COORDINATOR_H_
