#include "worker/metrics/tensorboard_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace muster {
namespace {

double Seconds(absl::Time time) { return static_cast<double>(absl::ToUnixMicros(time)) / 1e6; }

Scalar Value(absl::string_view tag, double value) { return {tag, static_cast<float>(value)}; }

}  // namespace

absl::StatusOr<TensorBoardWriter> TensorBoardWriter::Create(FileSystem& files,
                                                            const std::string& directory,
                                                            absl::string_view host,
                                                            absl::string_view instance,
                                                            absl::Time now) {
  MUSTER_RETURN_IF_ERROR(files.CreateDirectories(directory));
  // TensorBoard looks for "tfevents" in the name and reads the files of a directory in its order.
  std::string path = JoinPath(
      directory,
      absl::StrCat("events.out.tfevents.", absl::ToUnixSeconds(now), ".", host, ".", instance));
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, files.Create(path));
  TensorBoardWriter writer(std::move(path), std::move(file));
  MUSTER_RETURN_IF_ERROR(
      writer.file_->Append(EncodeTfRecord(EncodeFileVersionEvent(Seconds(now)))));
  return writer;
}

absl::Status TensorBoardWriter::WriteScalars(absl::Time now, Step step,
                                             absl::Span<const Scalar> scalars) {
  return file_->Append(EncodeTfRecord(EncodeScalarEvent(Seconds(now), step, scalars)));
}

absl::Status TensorBoardWriter::Write(absl::Time now, const StepMetrics& metrics) {
  return WriteScalars(
      now, metrics.step,
      {Value("train/loss", metrics.loss), Value("train/learning_rate", metrics.learning_rate),
       Value("train/gradient_norm", metrics.gradient_norm),
       Value("train/update_skipped", metrics.update_skipped ? 1 : 0),
       Value("train/data_epochs", metrics.data_epochs),
       Value("performance/step_time_ms", metrics.step_time_ms),
       Value("performance/samples_per_s", metrics.samples_per_s),
       Value("performance/comm_wait_share", metrics.comm_wait_share),
       Value("fleet/epoch", static_cast<double>(metrics.epoch)),
       Value("fleet/world_size", metrics.world_size)});
}

absl::Status TensorBoardWriter::Write(absl::Time now, const EvaluationMetrics& metrics) {
  return WriteScalars(
      now, metrics.step,
      {Value("test/loss", metrics.test_loss), Value("test/accuracy", metrics.test_accuracy)});
}

}  // namespace muster
