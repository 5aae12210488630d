#include "worker/runtime/job_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include "absl/time/clock.h"

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
        step_seconds(prometheus::BuildHistogram()
                         .Name("muster_worker_step_seconds")
                         .Help("Duration of a step")
                         .Register(registry)
                         .Add({}, prometheus::Histogram::BucketBoundaries{0.001, 0.002, 0.005, 0.01,
                                                                          0.02, 0.05, 0.1, 0.2, 0.5,
                                                                          1, 2, 5, 10, 30})),
        wait_seconds(Counter(registry, "muster_worker_comm_wait_seconds_total",
                             "Time steps spent waiting for communication")) {}

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
  prometheus::Histogram& step_seconds;
  prometheus::Counter& wait_seconds;
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

JobMetrics::JobMetrics(JobMetricsOptions options, FileSystem& files, Logger& logger)
    : options_(std::move(options)), files_(files), logger_(logger) {}

void JobMetrics::Record(const StepMetrics& metrics, Rank rank) {
  if (options_.gauges != nullptr) options_.gauges->Set(metrics, rank);
  Remember(metrics);
  if (!Writing(rank)) return;
  const absl::Time now = absl::Now();
  for (const StepMetrics& step : remembered_) {
    Check(lines_->Write(now, step));
    Check(board_->Write(now, step));
  }
  remembered_.clear();
}

void JobMetrics::Remember(const StepMetrics& metrics) {
  remembered_.push_back(metrics);
  if (remembered_.size() > kRemembered + 1) remembered_.pop_front();
}

void JobMetrics::Record(const EvaluationMetrics& metrics, Rank rank) {
  if (options_.gauges != nullptr) options_.gauges->Set(metrics);
  if (!Writing(rank)) return;
  const absl::Time now = absl::Now();
  Check(lines_->Write(now, metrics));
  Check(board_->Write(now, metrics));
}

bool JobMetrics::Writing(Rank rank) {
  if (rank != 0 || failed_ || options_.directory.empty()) return false;
  if (lines_.has_value()) return true;
  const std::string directory = JoinPath(options_.directory, options_.job);
  absl::StatusOr<JsonLinesWriter> lines =
      JsonLinesWriter::Open(files_, JoinPath(directory, "metrics.jsonl"));
  Check(lines.status());
  if (!lines.ok()) return false;
  absl::StatusOr<TensorBoardWriter> board =
      TensorBoardWriter::Create(files_, directory, options_.host, options_.instance, absl::Now());
  Check(board.status());
  if (!board.ok()) return false;
  lines_ = *std::move(lines);
  board_ = *std::move(board);
  return true;
}

void JobMetrics::Check(const absl::Status& status) {
  if (status.ok() || failed_) return;
  failed_ = true;
  logger_.Warning("metrics_lost", "writing metrics files failed; training goes on without them",
                  {{"error", status.ToString()}});
}

}  // namespace muster
