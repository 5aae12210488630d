// Writes scalars to a TensorBoard event file.
//
// The file is a sequence of TFRecords, each holding an Event message (event_encoding.h). Each call
// hands one whole record to the kernel before it returns. Thread-compatible.
#ifndef MUSTER_WORKER_METRICS_TENSORBOARD_WRITER_H_
#define MUSTER_WORKER_METRICS_TENSORBOARD_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/file.h"
#include "base/ids.h"
#include "worker/metrics/event_encoding.h"
#include "worker/metrics/step_metrics.h"

namespace muster {

class TensorBoardWriter {
 public:
  // Creates `directory`/events.out.tfevents.<unix seconds of now>.<host>.<instance>. `instance`
  // tells apart processes that start in the same second on one host (an incarnation, a pid).
  static absl::StatusOr<TensorBoardWriter> Create(FileSystem& files, const std::string& directory,
                                                  absl::string_view host,
                                                  absl::string_view instance, absl::Time now);

  absl::Status WriteScalars(absl::Time now, Step step, absl::Span<const Scalar> scalars);

  // Under train/, performance/ and fleet/, and under test/.
  absl::Status Write(absl::Time now, const StepMetrics& metrics);
  absl::Status Write(absl::Time now, const EvaluationMetrics& metrics);

  const std::string& path() const { return path_; }

 private:
  TensorBoardWriter(std::string path, std::unique_ptr<WritableFile> file)
      : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  std::unique_ptr<WritableFile> file_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_METRICS_TENSORBOARD_WRITER_H_
