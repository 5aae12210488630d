// Where a job's measurements go: rank 0 writes TensorBoard and JSON-lines files, every worker
// updates its Prometheus gauges. Failing to write is logged once and never stops training.
//
// Thread-compatible: the training thread's.
#ifndef MUSTER_WORKER_RUNTIME_JOB_METRICS_H_
#define MUSTER_WORKER_RUNTIME_JOB_METRICS_H_

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "base/control/communication.h"
#include "base/file.h"
#include "base/ids.h"
#include "base/log.h"
#include "worker/metrics/json_lines_writer.h"
#include "worker/metrics/step_metrics.h"
#include "worker/metrics/tensorboard_writer.h"
#include "worker/runtime/worker_gauges.h"

namespace muster {

struct JobMetricsOptions {
  std::string directory;  // empty: no files; they go to directory/<job>/
  JobId job;
  std::string host;
  std::string instance;            // tells apart files of workers of one host
  WorkerGauges* gauges = nullptr;  // may be null
};

class JobMetrics {
 public:
  JobMetrics(JobMetricsOptions options, FileSystem& files, Logger& logger);

  void Record(const StepMetrics& metrics, Rank rank);
  void Record(const EvaluationMetrics& metrics, Rank rank);
  // How the mesh of `epoch` communicates, as it is known after `step`.
  void Record(const CommunicationPath& path, Epoch epoch, Step step, Rank rank);
  // A step that was applied without being measured here (rolled forward): written before the next
  // one.
  void Remember(const StepMetrics& metrics);

 private:
  // Steps whose rank 0 may have died before it wrote them. The next rank 0 writes them, perhaps
  // again: of the records of a step the last one counts.
  static constexpr size_t kRemembered = 2;

  // Opens the files when this worker first has rank 0. False if there are none.
  bool Writing(Rank rank);
  void Check(const absl::Status& status);

  const JobMetricsOptions options_;
  FileSystem& files_;
  Logger& logger_;
  bool failed_ = false;
  std::deque<StepMetrics> remembered_;
  std::optional<JsonLinesWriter> lines_;
  std::optional<TensorBoardWriter> board_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_JOB_METRICS_H_
