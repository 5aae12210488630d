// Stands in for muster-coordinator in tests of `muster up`. What a job does is told by its name:
// "succeed" and "fail" end after a few states, "hang" runs until it is cancelled, and
// "never-queued" gets no answer.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/file.h"
#include "muster/v1/coordinator.grpc.pb.h"
#include "proto/rpc/server.h"
#include "tests/wait_until.h"

namespace muster {
namespace {

class FakeCoordinator final : public v1::Coordinator::Service {
 public:
  grpc::Status SubmitJob(grpc::ServerContext* context, const v1::SubmitJobRequest* request,
                         v1::SubmitJobResponse* response) override {
    if (request->description().name() == "never-queued") {
      const bool cancelled = WaitUntil([context] { return context->IsCancelled(); });
      return cancelled ? grpc::Status::CANCELLED : grpc::Status::OK;
    }
    job_.set_id("job-1");
    *job_.mutable_description() = request->description();
    job_.set_total_steps(request->description().training().steps());
    job_.set_state(v1::JOB_STATE_QUEUED);
    *response->mutable_job() = job_;
    return grpc::Status::OK;
  }

  grpc::Status WatchJob(grpc::ServerContext*, const v1::WatchJobRequest*,
                        grpc::ServerWriter<v1::WatchJobResponse>* writer) override {
    job_.set_state(v1::JOB_STATE_RUNNING);
    for (int step = 1; step <= job_.total_steps(); ++step) {
      job_.mutable_progress()->set_step(step);
      job_.mutable_progress()->set_loss(1.0 / step);
      Send(writer);
    }
    const std::string& name = job_.description().name();
    if (name == "hang") {
      cancelled_.WaitForNotification();
      job_.set_state(v1::JOB_STATE_CANCELLED);
      job_.set_reason(reason_);
      ended_.Notify();
    } else if (name == "fail") {
      job_.set_state(v1::JOB_STATE_FAILED);
      job_.set_reason("the data is unreadable");
    } else {
      job_.set_state(v1::JOB_STATE_SUCCEEDED);
      *job_.mutable_final_report()->mutable_progress() = job_.progress();
      job_.mutable_final_report()->set_parameters_sha256("abcd");
      job_.mutable_final_report()->set_checkpoint(job_.description().checkpoints().directory());
    }
    Send(writer);
    return grpc::Status::OK;
  }

  // Answers with the job's last state, as the real one does.
  grpc::Status CancelJob(grpc::ServerContext*, const v1::CancelJobRequest* request,
                         v1::CancelJobResponse* response) override {
    if (!was_cancelled_.exchange(true)) {
      reason_ = request->reason();
      cancelled_.Notify();
    }
    ended_.WaitForNotification();
    *response->mutable_job() = job_;
    return grpc::Status::OK;
  }

 private:
  void Send(grpc::ServerWriter<v1::WatchJobResponse>* writer) {
    v1::WatchJobResponse response;
    *response.mutable_job() = job_;
    writer->Write(response);
  }

  v1::Job job_;  // one client, which submits before it watches
  std::atomic<bool> was_cancelled_ = false;
  std::string reason_;  // read after cancelled_
  absl::Notification cancelled_;
  absl::Notification ended_;  // job_ changes no more
};

int Main(int argc, char** argv) {
  CLI::App app;
  std::string listen, ready_file;
  app.add_option("--listen", listen);
  app.add_option("--ready-file", ready_file);
  app.allow_extras();
  CLI11_PARSE(app, argc, argv);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  FakeCoordinator service;
  const absl::StatusOr<RunningServer> server =
      StartServer({.listen_address = listen, .services = {&service}});
  if (!server.ok()) return 1;
  PosixFileSystem files;
  const std::string ready = absl::StrCat("{\"rpc_address\": \"", server->address, "\"}");
  if (!ReplaceFileAtomically(files, ready_file, ready).ok()) return 1;
  int signal;
  sigwait(&set, &signal);
  server->server->Shutdown(std::chrono::system_clock::now());
  return 0;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::Main(argc, argv); }
