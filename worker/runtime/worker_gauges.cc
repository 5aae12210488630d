#include "worker/runtime/worker_gauges.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/mutex.h"

namespace muster {

struct WorkerGauges::Impl {
  explicit Impl(prometheus::Registry& registry)
      : step(Gauge(registry, "muster_worker_step", "Newest step applied by this worker")),
        epoch(Gauge(registry, "muster_worker_epoch", "Epoch of the view in force")),
        rank(Gauge(registry, "muster_worker_rank", "Rank in the view in force")),
        world_size(Gauge(registry, "muster_worker_world_size", "Members of the view in force")),
        loss(Gauge(registry, "muster_worker_loss", "Mean loss over the newest step's samples")),
        learning_rate(Gauge(registry, "muster_worker_learning_rate", "Learning rate")),
        gradient_norm(
            Gauge(registry, "muster_worker_gradient_norm", "Global gradient norm before clipping")),
        samples_per_second(Gauge(registry, "muster_worker_samples_per_second",
                                 "Samples per second of the whole fleet")),
        test_accuracy(Gauge(registry, "muster_worker_test_accuracy", "Accuracy on the test set")),
        skipped(Counter(registry, "muster_worker_skipped_steps_total",
                        "Updates skipped because loss or gradient was not finite")),
        checkpoint_failures(Counter(registry, "muster_worker_checkpoint_failures_total",
                                    "Checkpoints this worker could not write or give their name")),
        step_seconds(prometheus::BuildHistogram()
                         .Name("muster_worker_step_seconds")
                         .Help("Duration of a step")
                         .Register(registry)
                         .Add({}, prometheus::Histogram::BucketBoundaries{0.001, 0.002, 0.005, 0.01,
                                                                          0.02, 0.05, 0.1, 0.2, 0.5,
                                                                          1, 2, 5, 10, 30})),
        wait_seconds(Counter(registry, "muster_worker_comm_wait_seconds_total",
                             "Time steps spent waiting for communication")),
        waiting(Gauge(registry, "muster_worker_waiting_seconds",
                      "How long a collective has stood still now; 0: none does")),
        stragglers(prometheus::BuildCounter()
                       .Name("muster_worker_straggler_seconds_total")
                       .Help("Time that late collectives stood still, by the rank waited for")
                       .Register(registry)),
        paths(prometheus::BuildGauge()
                  .Name("muster_worker_communication_path_info")
                  .Help("1: how the view in force communicates")
                  .Register(registry)) {}

  static prometheus::Gauge& Gauge(prometheus::Registry& registry, const char* name,
                                  const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
  }
  static prometheus::Counter& Counter(prometheus::Registry& registry, const char* name,
                                      const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({});
  }

  prometheus::Gauge& step;
  prometheus::Gauge& epoch;
  prometheus::Gauge& rank;
  prometheus::Gauge& world_size;
  prometheus::Gauge& loss;
  prometheus::Gauge& learning_rate;
  prometheus::Gauge& gradient_norm;
  prometheus::Gauge& samples_per_second;
  prometheus::Gauge& test_accuracy;
  prometheus::Counter& skipped;
  prometheus::Counter& checkpoint_failures;
  prometheus::Histogram& step_seconds;
  prometheus::Counter& wait_seconds;
  prometheus::Gauge& waiting;
  prometheus::Family<prometheus::Counter>& stragglers;
  prometheus::Family<prometheus::Gauge>& paths;
  Mutex mutex;
  prometheus::Gauge* path ABSL_GUARDED_BY(mutex) = nullptr;  // the one that is 1
};

WorkerGauges::WorkerGauges(MetricsEndpoint& endpoint)
    : impl_(std::make_unique<Impl>(endpoint.registry())) {}
WorkerGauges::~WorkerGauges() = default;

void WorkerGauges::Set(const StepMetrics& metrics, Rank rank) {
  impl_->step.Set(static_cast<double>(metrics.step));
  impl_->epoch.Set(static_cast<double>(metrics.epoch));
  impl_->rank.Set(rank);
  impl_->world_size.Set(metrics.world_size);
  impl_->loss.Set(metrics.loss);
  impl_->learning_rate.Set(metrics.learning_rate);
  impl_->gradient_norm.Set(metrics.gradient_norm);
  impl_->samples_per_second.Set(metrics.samples_per_s);
  if (metrics.update_skipped) impl_->skipped.Increment();
  impl_->step_seconds.Observe(metrics.step_time_ms / 1000);
  impl_->wait_seconds.Increment(metrics.comm_wait_share * metrics.step_time_ms / 1000);
}

void WorkerGauges::Set(const EvaluationMetrics& metrics) {
  impl_->test_accuracy.Set(metrics.test_accuracy);
}

void WorkerGauges::CountCheckpointFailure() { impl_->checkpoint_failures.Increment(); }

void WorkerGauges::SetWaiting(absl::Duration waited) {
  impl_->waiting.Set(absl::ToDoubleSeconds(waited));
}

void WorkerGauges::CountStraggler(Rank rank, absl::Duration waited) {
  impl_->stragglers.Add({{"rank", absl::StrCat(rank)}})
      .Increment(std::max(0.0, absl::ToDoubleSeconds(waited)));
}

void WorkerGauges::Set(const CommunicationPath& path) {
  const auto algorithm = [&path](bool automatic) {
    std::vector<std::string> names;
    for (const AlgorithmInUse& use : path.algorithms) {
      if (use.automatic == automatic) {
        names.push_back(absl::StrCat(use.collective, ":", use.algorithm));
      }
    }
    return absl::StrJoin(names, ",");
  };
  MutexLock lock(&impl_->mutex);
  prometheus::Gauge& gauge = impl_->paths.Add({{"transport", path.transport},
                                               {"provider", path.provider},
                                               {"automatic", algorithm(true)},
                                               {"asked", algorithm(false)}});
  if (impl_->path == &gauge) return;
  if (impl_->path != nullptr) impl_->paths.Remove(impl_->path);
  impl_->path = &gauge;
  gauge.Set(1);
}

}  // namespace muster
