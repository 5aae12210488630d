#include "worker/runtime/worker.h"

#include <thread>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "collectives/transport/grpc/grpc_listener.h"
#include "collectives/transport/tcp_listener.h"
#include "worker/device/registry.h"
#include "worker/rpc/session_client.h"
#include "worker/rpc/worker_server.h"
#include "worker/runtime/available_memory.h"
#include "worker/runtime/core_host.h"
#include "worker/runtime/job_runner.h"
#include "worker/runtime/state_feed.h"

namespace muster {
namespace {

Incarnation DrawIncarnation() {
  absl::BitGen random;
  return Incarnation{absl::Uniform<uint64_t>(absl::IntervalClosed, random, 1, ~uint64_t{0})};
}

// "host:port" with the host of another such address.
std::string WithHostOf(const std::string& address, const std::string& other) {
  return other.substr(0, other.rfind(':')) + address.substr(address.rfind(':'));
}

}  // namespace

class Daemon::Impl : private SessionObserver {
 public:
  Impl(const DaemonOptions& options, FileSystem& files, Logger& logger)
      : options_(options), files_(files), logger_(logger) {}

  ~Impl() override {
    if (session_ != nullptr) session_->Shutdown();
    if (host_ != nullptr) host_->Stop();
    if (executor_.joinable()) executor_.join();
    runner_.reset();
    if (server_ != nullptr) server_->Shutdown();
  }

  // Memory to share with the workers of this host; null where the system has none.
  std::shared_ptr<SharedArena> MakeArena(std::string* why_not) {
    auto arena = SharedArena::Create();
    if (arena.ok()) return *std::move(arena);
    *why_not = std::string(arena.status().message());
    logger_.Warning("no_shared_memory", "workers of this host are reached over TCP instead",
                    {{"error", arena.status().message()}});
    return nullptr;
  }

  // What other processes see of this one, and the device.
  absl::Status StartServing() {
    auto device = CreateDevice(options_.device, {.cpu = {.threads = options_.threads}});
    if (!device.ok()) return Annotate(device.status(), "--device");
    device_ = *std::move(device);
    if (!options_.metrics_listen.empty()) {
      auto metrics = MetricsEndpoint::Start(options_.metrics_listen);
      if (!metrics.ok()) return Annotate(metrics.status(), "--metrics-listen");
      metrics_ = *std::move(metrics);
      gauges_ = std::make_unique<WorkerGauges>(*metrics_);
    }
    auto listener = TcpListener::Create(
        {.bind = options_.data_bind, .port = options_.data_port, .advertise = options_.advertise});
    if (!listener.ok()) {
      return Annotate(listener.status(),
                      options_.advertise.empty() ? "--listen-data" : "--listen-data, --advertise");
    }
    listener_ = *std::move(listener);
    WorkerServerOptions server_options;
    server_options.listen_address = options_.rpc_listen;
    server_options.meshes = &servers_;
    auto server = WorkerServer::Start(std::move(server_options), source_, operations_);
    if (!server.ok()) return Annotate(server.status(), "--listen-rpc");
    server_ = *std::move(server);
    return absl::OkStatus();
  }

  absl::Status Start() {
    MUSTER_RETURN_IF_ERROR(StartServing());
    WorkerOptions core;
    core.self = {.name = options_.name,
                 .incarnation = DrawIncarnation(),
                 .host = options_.host,
                 .data_address = listener_->address(),
                 // The name in `advertise` was looked up once, for both.
                 .rpc_address = options_.advertise.empty()
                                    ? server_->address()
                                    : WithHostOf(server_->address(), listener_->address()),
                 .device = options_.device,
                 .role = options_.role};
    core.software_version = options_.software_version;
    // Before any job takes its part.
    core.memory = {.process_bytes = options_.memory_bytes,
                   .host_bytes = AvailableMemory().value_or(0)};
    host_ = std::make_unique<CoreHost>(core);
    std::string no_arena;
    auto arena = MakeArena(&no_arena);
    runner_ = std::make_unique<JobRunner>(
        JobRunnerOptions{.servers = &servers_,
                         .arena = std::move(arena),
                         .no_arena = std::move(no_arena),
                         .host = options_.host,
                         .role = options_.role,
                         .memory_bytes = options_.memory_bytes,
                         .run_directory = options_.run_directory,
                         .gauges = gauges_.get(),
                         .operations = &operations_,
                         .model_cache = options_.model_cache,
                         .mesh_timeout = options_.mesh_timeout,
                         .final_checkpoint_timeout = options_.final_checkpoint_timeout},
        *host_, *listener_, *device_, files_, source_, logger_);
    SessionClientOptions session_options;
    session_options.coordinator_address = options_.coordinator_address;
    session_options.first_attach_timeout = options_.connect_timeout;
    MUSTER_ASSIGN_OR_RETURN(
        session_, SessionClient::Start(
                      std::move(session_options), [this] { return host_->MakeHello(); }, *this));
    executor_ = std::thread([this] {
      host_->Run([this](const worker::Action& action) {
        std::visit([this](const auto& order) { Obey(order); }, action);
      });
    });
    return absl::OkStatus();
  }

  void Drain() { host_->Dispatch(worker::DrainRequested{}); }

  int Wait(std::string* reason) {
    MutexLock lock(&mutex_);
    mutex_.Await(Condition(&left_));
    *reason = exit_reason_;
    return exit_code_;
  }

  const std::string& data_address() const { return listener_->address(); }
  const std::string& rpc_address() const { return server_->address(); }
  int metrics_port() const { return metrics_ == nullptr ? 0 : metrics_->port(); }

 private:
  // ---- session's thread ----
  void OnAttached() override {
    detached_reason_.clear();
    host_->Dispatch(worker::SessionAttached{});
  }

  void OnDetached(const absl::Status& reason) override {
    if (reason.message() != detached_reason_) {
      detached_reason_ = std::string(reason.message());
      logger_.Warning("detached", "no session with the coordinator; trying again",
                      {{"reason", detached_reason_}});
    }
    host_->Dispatch(worker::SessionDetached{});
  }

  void OnDirective(Term term, const Directive& directive,
                   const std::optional<JobSpec>& job) override {
    if (const auto* welcome = std::get_if<Welcome>(&directive)) {
      runner_->SetIdentity(host_->self(), welcome->fleet_id);
      logger_.Info("joined", "joined the fleet",
                   {{"fleet", welcome->fleet_id},
                    {"term", term},
                    {"incarnation", host_->self().ToString()}});
    }
    host_->Dispatch(worker::DirectiveReceived{
        directive, term, job.has_value() ? std::make_shared<const JobSpec>(*job) : nullptr});
  }

  void OnGaveUp(const absl::Status& reason) override { Leave(1, std::string(reason.message())); }

  // ---- executor's thread ----
  void Obey(const worker::SendStatus& order) {
    if (order.status.has_state) runner_->SetStable(order.status.stable);
    session_->Send(host_->self(), order.status);
  }
  void Obey(const worker::SendSuspicion& order) {
    // It is sent again and again until a proposal comes.
    const bool again = std::exchange(told_suspicion_, order.suspicion) == order.suspicion;
    if (order.suspicion.suspect && !again) {
      logger_.Warning(
          "suspicion", "a link of the mesh broke",
          {{"suspect", order.suspicion.suspect.ToString()}, {"reason", order.suspicion.reason}});
    } else {
      logger_.Debug("mesh_down", "the mesh of the view is down; nobody is suspected",
                    {{"reason", order.suspicion.reason}});
    }
    session_->Send(host_->self(), order.suspicion);
  }
  void Obey(const worker::Quiesce& order) { runner_->Quiesce(order); }
  void Obey(const worker::StartLearning& order) { runner_->StartLearning(order); }
  void Obey(const worker::StopLearning&) { runner_->StopLearning(); }
  void Obey(const worker::LearnUpTo& order) { runner_->LearnUpTo(order); }
  void Obey(const worker::StartFresh& order) { runner_->StartFresh(order); }
  void Obey(const worker::RollForward& order) { runner_->RollForward(order); }
  void Obey(const worker::MoveRanges& order) { runner_->MoveRanges(order); }
  // The gradient lies in the replica's one gradient buffer, which the next step overwrites.
  void Obey(const worker::DiscardPrepared&) {}
  void Obey(const worker::ConnectMesh& order) { runner_->ConnectMesh(order.view); }
  void Obey(const worker::RunSteps& order) { runner_->RunSteps(order.view, order.first_step); }
  void Obey(const worker::DoFinalWork& order) { runner_->DoFinalWork(order.epoch, order.tag); }
  void Obey(const worker::StartDrainCheckpoint&) { runner_->WriteCheckpoint(); }
  void Obey(const worker::SealAmongMembers& order) { runner_->SealAmongMembers(order); }
  void Obey(const worker::KeepState& order) { runner_->KeepState(order); }
  void Obey(const worker::CommitCheckpointFiles& order) {
    runner_->CommitCheckpointFiles(order.tag);
  }
  void Obey(const worker::BecomeIdle& order) {
    logger_.Info("job_ended", "the job is over for this worker",
                 {{"job", order.job}, {"outcome", Name(order.outcome)}, {"reason", order.reason}});
    // A job that was cut short ends in the middle of a step, and others may hear of it later.
    runner_->Drop(order.outcome == JobState::kSucceeded || order.outcome == JobState::kRunning
                      ? absl::OkStatus()
                      : absl::CancelledError(absl::StrCat("the job has ", Name(order.outcome))),
                  [this] { logger_.SetContext(-1, 0, 0); });
  }
  void Obey(const worker::Rejoin& order) {
    logger_.Warning("rejoin", "this incarnation is out of the fleet; joining as a new one",
                    {{"reason", order.reason}});
    runner_->Drop(absl::OkStatus(), [this] {
      logger_.SetContext(-1, 0, 0);
      host_->Replace(DrawIncarnation());
      session_->Rejoin();
    });
  }
  void Obey(const worker::Exit& order) { Leave(order.code, order.reason); }
  void Obey(const worker::Log& order) {
    order.warning ? logger_.Warning("control", order.text) : logger_.Info("control", order.text);
  }
  // The host takes these itself.
  void Obey(const worker::ContributeCommit&) {}
  void Obey(const worker::ApplyStep&) {}
  void Obey(const worker::SealMove&) {}
  void Obey(const worker::AdoptPart&) {}
  void Obey(const worker::SetTimer&) {}
  void Obey(const worker::CancelTimer&) {}

  void Leave(int code, std::string reason) {
    MutexLock lock(&mutex_);
    if (left_) return;
    left_ = true;
    exit_code_ = code;
    exit_reason_ = std::move(reason);
  }

  const DaemonOptions options_;
  FileSystem& files_;
  Logger& logger_;
  std::string detached_reason_;  // the session thread's
  Suspicion told_suspicion_;     // the executor's; the last one

  std::unique_ptr<Device> device_;
  std::unique_ptr<MetricsEndpoint> metrics_;
  std::unique_ptr<WorkerGauges> gauges_;
  std::unique_ptr<TcpListener> listener_;
  GrpcListener servers_;  // outlives the server that it takes calls from
  ReplicaStateSource source_;
  MeshOperations operations_;
  std::unique_ptr<WorkerServer> server_;
  std::unique_ptr<CoreHost> host_;
  std::unique_ptr<JobRunner> runner_;
  std::unique_ptr<SessionClient> session_;
  std::thread executor_;

  Mutex mutex_;
  bool left_ ABSL_GUARDED_BY(mutex_) = false;
  int exit_code_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string exit_reason_ ABSL_GUARDED_BY(mutex_);
};

Daemon::Daemon(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Daemon::~Daemon() = default;

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const DaemonOptions& options,
                                                      FileSystem& files, Logger& logger) {
  auto impl = std::make_unique<Impl>(options, files, logger);
  MUSTER_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Daemon>(new Daemon(std::move(impl)));
}

void Daemon::Drain() { impl_->Drain(); }
int Daemon::Wait(std::string* reason) { return impl_->Wait(reason); }
const std::string& Daemon::data_address() const { return impl_->data_address(); }
const std::string& Daemon::rpc_address() const { return impl_->rpc_address(); }
int Daemon::metrics_port() const { return impl_->metrics_port(); }

}  // namespace muster
