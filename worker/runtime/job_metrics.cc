#include "worker/runtime/job_metrics.h"

#include "absl/time/clock.h"

namespace muster {

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

void JobMetrics::Record(const CommunicationPath& path, Epoch epoch, Step step, Rank rank) {
  if (options_.gauges != nullptr) options_.gauges->Set(path);
  if (Writing(rank)) Check(lines_->Write(absl::Now(), path, epoch, step));
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
