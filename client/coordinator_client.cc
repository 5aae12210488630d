#include "client/coordinator_client.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <random>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "muster/v1/coordinator.grpc.pb.h"
#include "proto/rpc/address.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/status.h"

namespace muster {
namespace {

constexpr absl::Duration kFirstBackoff = absl::Milliseconds(100);
constexpr absl::Duration kLargestBackoff = absl::Seconds(2);
constexpr int kPageSize = 100;

// Different in every call of every process.
std::string NewRequestId() {
  std::random_device random;
  return absl::StrFormat("%08x%08x%08x%08x", random(), random(), random(), random());
}

absl::Status ShutDownError() { return absl::CancelledError("the client was shut down"); }

// A failed call that did not reach the coordinator, or found it restarting.
bool MayRetry(const absl::Status& status) { return absl::IsUnavailable(status); }

}  // namespace

struct CoordinatorClient::Impl {
  explicit Impl(CoordinatorClientOptions options_in)
      : options(std::move(options_in)), address(ParseHostPort(options.address).status()) {
    if (address.ok()) stub = v1::Coordinator::NewStub(NewChannel(options.address));
  }

  // Registers a call so that Shutdown can cancel it.
  class Call {
   public:
    explicit Call(Impl* impl) : impl_(impl) {
      absl::MutexLock lock(&impl_->mutex);
      impl_->calls.insert(&context);
      if (impl_->shut_down) context.TryCancel();
    }
    ~Call() {
      absl::MutexLock lock(&impl_->mutex);
      impl_->calls.erase(&context);
    }
    grpc::ClientContext context;

   private:
    Impl* const impl_;
  };

  bool IsShutDown() {
    absl::MutexLock lock(&mutex);
    return shut_down;
  }

  // Of a call that begins at `start`.
  absl::Time DeadlineOf(absl::Time start) const {
    return std::min(start + options.timeout, options.deadline);
  }

  // Waits, unless the client is shut down.
  void Sleep(absl::Duration duration) {
    absl::MutexLock lock(&mutex);
    mutex.AwaitWithTimeout(absl::Condition(&shut_down), duration);
  }

  // What a person can do about a coordinator that gRPC cannot reach, for the reason `why`.
  std::string HowToReachIt(const std::string& why) const {
    const std::string host = ParseHostPort(options.address)->host;
    if (IsThisMachine(host)) {
      return absl::StrCat("is it running there? Start one with: muster-coordinator --listen ",
                          options.address);
    }
    if (absl::StrContains(why, "DNS resolution failed")) {
      return absl::StrCat("the name ", host,
                          " does not resolve here: check its spelling, or give "
                          "the coordinator's IP address");
    }
    return absl::StrCat("is it running on ", host,
                        ", does it listen on an address that can be "
                        "reached from here, and does the network let port ",
                        ParseHostPort(options.address)->port, " through?");
  }

  // What a person can do about it, beside what gRPC says. `waited`: how long the call could take.
  absl::Status Explain(const grpc::Status& status, absl::Duration waited) {
    if (status.ok()) return absl::OkStatus();
    if (IsShutDown()) return ShutDownError();
    // What the coordinator itself says of a worker is no failure to reach the coordinator.
    const bool of_worker = absl::StartsWith(status.error_message(), "worker ");
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE && !of_worker) {
      return absl::UnavailableError(absl::StrCat("coordinator ", options.address,
                                                 " cannot be reached (", status.error_message(),
                                                 "); ", HowToReachIt(status.error_message())));
    }
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED && !of_worker) {
      return absl::DeadlineExceededError(
          absl::StrCat("coordinator ", options.address, " did not answer within ",
                       absl::FormatDuration(absl::Ceil(waited, absl::Milliseconds(1))),
                       "; it may be overloaded, stopped or behind a broken network"));
    }
    return FromGrpcStatus(status, absl::StrCat("coordinator ", options.address));
  }

  template <typename Request, typename Response>
  using Method = grpc::Status (v1::Coordinator::StubInterface::*)(grpc::ClientContext*,
                                                                  const Request&, Response*);

  template <typename Request, typename Response>
  absl::StatusOr<Response> Invoke(Method<Request, Response> method, const Request& request,
                                  absl::Time start) {
    MUSTER_RETURN_IF_ERROR(address);
    Call call(this);
    const absl::Time deadline = DeadlineOf(start);
    call.context.set_deadline(absl::ToChronoTime(deadline));
    Response response;
    const grpc::Status status = (stub.get()->*method)(&call.context, request, &response);
    if (!status.ok()) return Explain(status, std::max(deadline - start, absl::ZeroDuration()));
    return response;
  }

  template <typename Request, typename Response>
  absl::StatusOr<Response> Invoke(Method<Request, Response> method, const Request& request) {
    return Invoke(method, request, absl::Now());
  }

  const CoordinatorClientOptions options;
  const absl::Status address;  // whether options.address is one
  std::unique_ptr<v1::Coordinator::StubInterface> stub;

  absl::Mutex mutex;
  bool shut_down ABSL_GUARDED_BY(mutex) = false;
  std::set<grpc::ClientContext*> calls ABSL_GUARDED_BY(mutex);
};

CoordinatorClient::CoordinatorClient(CoordinatorClientOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
CoordinatorClient::~CoordinatorClient() = default;

absl::StatusOr<v1::Job> CoordinatorClient::SubmitJob(const v1::JobDescription& description,
                                                     const std::string& request_id) {
  v1::SubmitJobRequest request;
  *request.mutable_description() = description;
  request.set_request_id(request_id.empty() ? NewRequestId() : request_id);
  const absl::Time start = absl::Now();
  absl::Duration backoff = kFirstBackoff;
  while (true) {
    auto response = impl_->Invoke(&v1::Coordinator::StubInterface::SubmitJob, request, start);
    if (response.ok()) return std::move(*response->mutable_job());
    if (!MayRetry(response.status()) || absl::Now() + backoff >= impl_->DeadlineOf(start)) {
      return response.status();
    }
    impl_->Sleep(backoff);
    backoff = std::min(2 * backoff, kLargestBackoff);
  }
}

absl::StatusOr<v1::Job> CoordinatorClient::GetJob(const std::string& job_id) {
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  MUSTER_ASSIGN_OR_RETURN(auto response,
                          impl_->Invoke(&v1::Coordinator::StubInterface::GetJob, request));
  return std::move(*response.mutable_job());
}

absl::StatusOr<std::vector<v1::Job>> CoordinatorClient::ListJobs(size_t limit) {
  std::vector<v1::Job> jobs;
  v1::ListJobsRequest request;
  while (jobs.size() < limit) {
    request.set_page_size(static_cast<int>(std::min<size_t>(kPageSize, limit - jobs.size())));
    MUSTER_ASSIGN_OR_RETURN(auto response,
                            impl_->Invoke(&v1::Coordinator::StubInterface::ListJobs, request));
    for (v1::Job& job : *response.mutable_jobs()) jobs.push_back(std::move(job));
    if (response.next_page_token().empty() || response.jobs_size() == 0) break;
    request.set_page_token(response.next_page_token());
  }
  return jobs;
}

absl::StatusOr<v1::Job> CoordinatorClient::SwitchJob(const std::string& job_id,
                                                     const v1::Strategy& strategy) {
  v1::SwitchJobRequest request;
  request.set_job_id(job_id);
  *request.mutable_strategy() = strategy;
  MUSTER_ASSIGN_OR_RETURN(auto response,
                          impl_->Invoke(&v1::Coordinator::StubInterface::SwitchJob, request));
  return std::move(*response.mutable_job());
}

absl::StatusOr<v1::ExplainStrategyResponse> CoordinatorClient::ExplainStrategy(
    const std::string& job_id) {
  v1::ExplainStrategyRequest request;
  request.set_job_id(job_id);
  return impl_->Invoke(&v1::Coordinator::StubInterface::ExplainStrategy, request);
}

absl::StatusOr<v1::CancelJobResponse> CoordinatorClient::CancelJob(const std::string& job_id,
                                                                   const std::string& reason) {
  v1::CancelJobRequest request;
  request.set_job_id(job_id);
  request.set_reason(reason);
  return impl_->Invoke(&v1::Coordinator::StubInterface::CancelJob, request);
}

absl::StatusOr<v1::ListMembersResponse> CoordinatorClient::ListMembers() {
  return impl_->Invoke(&v1::Coordinator::StubInterface::ListMembers, v1::ListMembersRequest());
}

absl::StatusOr<v1::GetOperationsResponse> CoordinatorClient::GetOperations(
    const std::string& job_id, int rank) {
  v1::GetOperationsRequest request;
  request.set_job_id(job_id);
  request.set_rank(rank);
  return impl_->Invoke(&v1::Coordinator::StubInterface::GetOperations, request);
}

absl::StatusOr<v1::Job> CoordinatorClient::WatchJob(
    const std::string& job_id, const std::function<bool(const v1::Job&)>& on_update,
    const std::function<void(const absl::Status&)>& on_lost) {
  MUSTER_RETURN_IF_ERROR(impl_->address);
  v1::WatchJobRequest request;
  request.set_job_id(job_id);
  absl::Duration backoff = kFirstBackoff;
  // When the coordinator could first not be reached; a job may have no news for long before that.
  absl::Time lost_since = absl::Now();
  // Who has never been reached is given up as soon as any other call would be.
  absl::Duration patience = impl_->options.timeout;
  bool lost = false;
  bool was_reached = false;
  while (true) {
    Impl::Call call(impl_.get());
    const auto reader = impl_->stub->WatchJob(&call.context, request);
    v1::WatchJobResponse response;
    while (reader->Read(&response)) {
      lost = false;
      backoff = kFirstBackoff;
      was_reached = true;
      patience = impl_->options.watch_patience;
      if (!on_update(response.job())) {
        call.context.TryCancel();
        reader->Finish();
        return absl::CancelledError("watching was stopped");
      }
      if (HasEnded(response.job())) {
        call.context.TryCancel();
        reader->Finish();
        return std::move(*response.mutable_job());
      }
    }
    grpc::Status ended = reader->Finish();
    if (impl_->IsShutDown()) return ShutDownError();
    if (ended.ok()) {
      // A coordinator that shuts down ends its streams; the job has not ended.
      ended = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the stream ended before the job");
    } else if (ended.error_code() == grpc::StatusCode::CANCELLED) {
      // Not by this client: a coordinator that shuts down does not wait for its streams for ever.
      ended = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the coordinator ended the stream");
    }
    const absl::Status status = impl_->Explain(ended, impl_->options.timeout);
    if (!MayRetry(status)) return status;
    const absl::Time now = absl::Now();
    if (!lost && was_reached) lost_since = now;
    if (now - lost_since >= patience) {
      if (!was_reached) return status;
      return Annotate(status,
                      absl::StrCat("gave up following ", job_id, " after ",
                                   absl::FormatDuration(patience), " without its coordinator"));
    }
    if (!lost && on_lost) on_lost(status);
    lost = true;
    impl_->Sleep(std::min(backoff, patience - (now - lost_since)));
    backoff = std::min(2 * backoff, kLargestBackoff);
  }
}

void CoordinatorClient::Shutdown() {
  absl::MutexLock lock(&impl_->mutex);
  impl_->shut_down = true;
  for (grpc::ClientContext* context : impl_->calls) context->TryCancel();
}

bool HasEnded(const v1::Job& job) {
  return job.state() == v1::JOB_STATE_SUCCEEDED || job.state() == v1::JOB_STATE_FAILED ||
         job.state() == v1::JOB_STATE_CANCELLED;
}

}  // namespace muster
