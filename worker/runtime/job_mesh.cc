// The part of JobRunner that connects a view's mesh, tells how it communicates, and ends it.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "worker/metrics/operation_log.h"
#include "worker/runtime/connect_mesh.h"
#include "worker/runtime/job_runner.h"

namespace muster {
namespace {

// How far pushes and pulls that go inside the hosts first have something to do there.
void LogHostsOfWorkers(const View& view, Logger& logger) {
  std::map<std::string, int> workers_on;
  int most = 0;
  for (int worker = 0; worker < view.workers(); ++worker) {
    most = std::max(most, ++workers_on[view.members[static_cast<size_t>(worker)].host]);
  }
  const std::vector<LogField> fields = {{"epoch", view.epoch},
                                        {"workers", view.workers()},
                                        {"hosts", static_cast<int>(workers_on.size())},
                                        {"most_on_a_host", most}};
  if (most > 1) {
    logger.Log(LogLevel::kInfo, "hosts_push_first_inside",
               "workers of a host add up their gradients before these leave it", fields);
  } else {
    logger.Log(LogLevel::kWarning, "hosts_have_one_worker",
               "no two workers are on one host, so each pushes and pulls for itself; "
               "muster-worker --host says who shares one",
               fields);
  }
}

}  // namespace

void JobRunner::DoConnect(const View& view) {
  MeshSpec spec;
  spec.epoch = view.epoch;
  Incarnation self;
  {
    MutexLock lock(&mutex_);
    self = self_;
    spec.token = absl::StrCat(fleet_id_, "/", view.job);
  }
  spec.rank = view.RankOf(self);
  MUSTER_CHECK_GE(spec.rank, 0) << "ordered to connect a view this worker is no member of";
  const CommunicationSpec asked = CommunicationIn(view, context_->spec());
  for (const Member& member : view.members) {
    spec.members.push_back(
        {.incarnation = member.incarnation,
         .address = MeetsAtServers(asked) ? member.rpc_address : member.data_address,
         .host = member.host});
  }
  absl::StatusOr<ConnectedMesh> mesh =
      muster::ConnectMesh(asked, listener_, options_.servers, std::move(spec), options_.arena,
                          options_.no_arena, absl::Now() + options_.mesh_timeout);
  if (absl::IsUnimplemented(mesh.status())) return Fail(mesh.status());
  if (!mesh.ok()) return ReportMeshFailure(view.epoch, mesh.status(), std::nullopt);
  path_ = {.transport = std::string(mesh->transport->name()),
           .provider = mesh->provider,
           .why = mesh->why};
  logger_.Info("mesh_connected", "the workers of the view are connected",
               {{"epoch", view.epoch},
                {"transport", path_.transport},
                {"provider", path_.provider},
                {"why", path_.why}});
  if (options_.gauges != nullptr) options_.gauges->Set(path_);
  core_.Dispatch(worker::PathMeasured{view.epoch, path_});
  if (view.strategy.serves() && view.strategy.algorithm == SyncAlgorithm::kHierarchical) {
    LogHostsOfWorkers(view, logger_);
  }
  CommunicatorOptions options;
  const CommunicationSpec& communication = context_->spec().communication;
  options.default_timeout = absl::Milliseconds(communication.timeout_ms);
  options.any_order = communication.summation_order == CommunicationSpec::SummationOrder::kAny;
  options.hosts = HostsOf(view);
  options.on_wait = [this, view](const OperationWait& wait) {
    core_.Dispatch(worker::WaitMeasured{view.epoch, waits_->Take(view, wait, absl::Now())});
  };
  options.on_failure = [this, epoch = view.epoch](const MeshFailure& failure) {
    ReportMeshFailure(epoch, failure.status, failure.culprit);
  };
  absl::StatusOr<std::unique_ptr<Communicator>> created =
      Communicator::Create(std::move(mesh->transport), std::move(options));
  if (!created.ok()) return ReportMeshFailure(view.epoch, created.status(), std::nullopt);
  const std::shared_ptr<Communicator> communicator = *std::move(created);
  {
    MutexLock lock(&mutex_);
    communicator_ = communicator;
    communicator_epoch_ = view.epoch;
  }
  view_ = view;
  if (options_.operations != nullptr) {
    MutexLock lock(&mutex_);
    options_.operations->Show(self, view.job, view.epoch, communicator_);
  }
  // StopMesh may have come before the communicator was there to be aborted; its order to close the
  // mesh is queued behind this one.
  if (view.epoch < stopped_below()) return;
  const absl::Status tuned = tuner_.Tune(*communicator, view, asked, path_.provider);
  if (!tuned.ok()) {
    const std::optional<MeshFailure> failure = communicator->failure();
    return ReportMeshFailure(view.epoch, Annotate(tuned, "measuring the mesh"),
                             failure.has_value() ? failure->culprit : std::nullopt);
  }
  if (const std::optional<LinkSpeeds> links = tuner_.SpeedsFor(asked.bucket_bytes)) {
    core_.Dispatch(worker::LinksMeasured{view.epoch, *links});
  }
  OfferState(view);
  core_.Dispatch(worker::MeshConnected{view.epoch});
}

void JobRunner::PublishPath(const Communicator& communicator) {
  CommunicationPath path = path_;
  path.algorithms.clear();
  for (AlgorithmUse& use : communicator.AlgorithmsInUse()) {
    path.algorithms.push_back({.collective = Name(use.collective),
                               .algorithm = Name(use.algorithm),
                               .least_bytes = use.least_bytes,
                               .most_bytes = use.most_bytes,
                               .automatic = use.automatic,
                               .why = std::move(use.why)});
  }
  if (path == path_) return;
  path_ = std::move(path);
  logger_.Info("communication_path", Describe(path_),
               {{"transport", path_.transport}, {"provider", path_.provider}});
  metrics_->Record(path_, view_->epoch, progress_.step, communicator.rank());
  core_.Dispatch(worker::PathMeasured{view_->epoch, path_});
}

void JobRunner::StopMesh(Epoch below, const absl::Status& why) {
  // A view may still come of epoch `below` itself, which nobody else need have heard of.
  if (below > 0) highest_epoch_ = std::max(highest_epoch_, below - 1);
  Epoch current = stopped_below();
  while (current < below && !stopped_below_.compare_exchange_weak(current, below)) {
  }
  if (below > 0) listener_.CancelThrough(below - 1);
  if (below > 0 && options_.servers != nullptr) options_.servers->CancelThrough(below - 1);
  std::shared_ptr<Communicator> communicator;
  {
    MutexLock lock(&mutex_);
    if (communicator_epoch_ < below) communicator = communicator_;
  }
  if (communicator == nullptr) return;
  if (why.ok()) {
    communicator->Close();
  } else {
    // Ends the step of those who have not heard of it yet. Nobody is to blame for it.
    communicator->Abort(why);
  }
}

void JobRunner::CloseMesh() {
  std::shared_ptr<Communicator> communicator;
  {
    MutexLock lock(&mutex_);
    communicator = std::move(communicator_);
    communicator_ = nullptr;
    closed_epoch_ = communicator_epoch_;
  }
  view_.reset();
  if (options_.operations != nullptr) options_.operations->Hide();
  if (communicator == nullptr) return;
  communicator->Close();
  closed_mesh_ = communicator;
  if (!communicator->MustRenewBuffers() || replica_ == nullptr) return;
  logger_.Warning("gradients_renewed", "a frozen worker could still write to the gradient buffer");
  const absl::Status renewed = replica_->buffers().Renew();
  if (!renewed.ok()) Fail(renewed);
}

void JobRunner::WriteOperations() {
  const std::shared_ptr<Communicator> mesh = std::exchange(closed_mesh_, nullptr);
  if (mesh == nullptr || options_.run_directory.empty() || context_ == nullptr) return;
  const std::optional<MeshFailure> failure = mesh->failure();
  // A change of view or the job's end is no fault to look into.
  if (!failure.has_value() || absl::IsCancelled(failure->status)) return;
  const std::string directory = JoinPath(options_.run_directory, context_->id());
  const std::string path = JoinPath(directory, absl::StrCat("operations-epoch-", closed_epoch_,
                                                            "-rank-", mesh->rank(), ".jsonl"));
  const absl::Status written = [&]() -> absl::Status {
    MUSTER_RETURN_IF_ERROR(files_.CreateDirectories(directory));
    MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, files_.Create(path));
    MUSTER_RETURN_IF_ERROR(
        file->Append(OperationsAsJsonLines(mesh->RecentOperations(), absl::Now())));
    return file->Close();
  }();
  if (!written.ok()) {
    logger_.Warning("operations_not_written", written.message());
    return;
  }
  logger_.Info("operations_written", "the operations before the mesh failed are recorded",
               {{"path", path}, {"reason", failure->status.message()}});
}

void JobRunner::ReportMeshFailure(Epoch epoch, const absl::Status& status,
                                  std::optional<Rank> culprit) {
  if (epoch < stopped_below()) return;
  core_.Dispatch(worker::MeshFailed{epoch, culprit, std::string(status.message())});
}

}  // namespace muster
