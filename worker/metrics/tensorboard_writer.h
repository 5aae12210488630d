// Writes scalars to a TensorBoard event file.
//
// The file is a sequence of TFRecords (little-endian 64-bit length, masked CRC-32C of the length,
// data, masked CRC-32C of the data), each holding an Event message of
// tensorflow/core/util/event.proto. Each call hands one whole record to the kernel before it
// returns. Thread-compatible.
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
#include "worker/metrics/step_metrics.h"

namespace muster {

struct Scalar {
  absl::string_view tag;  // "train/loss"
  float value = 0;
};

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
  absl::Status WriteRecord(absl::string_view data);

  std::string path_;
  std::unique_ptr<WritableFile> file_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_METRICS_TENSORBOARD_WRITER_H_
