// Appends a job's metrics to a file of JSON objects, one per line.
//
// A line is handed to the kernel whole before the call returns, so a reader may follow the file and
// a killed process loses nothing it wrote. Opening an existing file goes on after its end; if its
// last line was torn, that line is ended first. After a resume steps may come again: the last
// record of a step counts. Numbers that are not finite are written as null. Thread-compatible.
//
// Keys of a step: kind ("step"), time (seconds since 1970), step, loss, learning_rate,
// gradient_norm, update_skipped, step_time_ms, samples_per_s, comm_wait_share, data_epochs, epoch,
// world_size. Keys of an evaluation: kind ("evaluation"), time, step, test_loss, test_accuracy.
// Keys of a communication path, which comes when it has changed: kind ("communication"), time,
// step, epoch, transport, provider, why, algorithms (each: collective, algorithm, least_bytes,
// most_bytes, automatic, why).
#ifndef MUSTER_WORKER_METRICS_JSON_LINES_WRITER_H_
#define MUSTER_WORKER_METRICS_JSON_LINES_WRITER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/control/communication.h"
#include "base/file.h"
#include "base/ids.h"
#include "worker/metrics/step_metrics.h"

namespace muster {

class JsonLinesWriter {
 public:
  // Creates missing directories of `path`.
  static absl::StatusOr<JsonLinesWriter> Open(FileSystem& files, const std::string& path);

  absl::Status Write(absl::Time now, const StepMetrics& metrics);
  absl::Status Write(absl::Time now, const EvaluationMetrics& metrics);
  // How the mesh of `epoch` communicates, as it is known after `step`.
  absl::Status Write(absl::Time now, const CommunicationPath& path, Epoch epoch, Step step);

 private:
  explicit JsonLinesWriter(std::unique_ptr<WritableFile> file) : file_(std::move(file)) {}
  std::unique_ptr<WritableFile> file_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_METRICS_JSON_LINES_WRITER_H_
