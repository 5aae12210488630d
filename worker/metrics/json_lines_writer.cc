#include "worker/metrics/json_lines_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace muster {
namespace {

// Keeps the order in which keys are added.
using Json = nlohmann::ordered_json;

absl::Status AppendLine(WritableFile& file, const Json& record) {
  return file.Append(record.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

double Seconds(absl::Time time) { return static_cast<double>(absl::ToUnixMicros(time)) / 1e6; }

// Whether the file's last line was ended.
absl::StatusOr<bool> EndsWithNewline(FileSystem& files, const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, files.Open(path));
  if (file->size() == 0) return true;
  char last = 0;
  MUSTER_ASSIGN_OR_RETURN(const size_t count,
                          file->ReadAt(file->size() - 1, absl::MakeSpan(&last, 1)));
  return count == 1 && last == '\n';
}

}  // namespace

absl::StatusOr<JsonLinesWriter> JsonLinesWriter::Open(FileSystem& files, const std::string& path) {
  MUSTER_RETURN_IF_ERROR(files.CreateDirectories(ParentDirectory(path)));
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, files.OpenToAppend(path));
  MUSTER_ASSIGN_OR_RETURN(const bool ended, EndsWithNewline(files, path));
  if (!ended) MUSTER_RETURN_IF_ERROR(file->Append("\n"));
  return JsonLinesWriter(std::move(file));
}

absl::Status JsonLinesWriter::Write(absl::Time now, const StepMetrics& metrics) {
  return AppendLine(*file_, {{"kind", "step"},
                             {"time", Seconds(now)},
                             {"step", metrics.step},
                             {"loss", metrics.loss},
                             {"learning_rate", metrics.learning_rate},
                             {"gradient_norm", metrics.gradient_norm},
                             {"update_skipped", metrics.update_skipped},
                             {"step_time_ms", metrics.step_time_ms},
                             {"samples_per_s", metrics.samples_per_s},
                             {"comm_wait_share", metrics.comm_wait_share},
                             {"data_epochs", metrics.data_epochs},
                             {"epoch", metrics.epoch},
                             {"world_size", metrics.world_size}});
}

absl::Status JsonLinesWriter::Write(absl::Time now, const EvaluationMetrics& metrics) {
  return AppendLine(*file_, {{"kind", "evaluation"},
                             {"time", Seconds(now)},
                             {"step", metrics.step},
                             {"test_loss", metrics.test_loss},
                             {"test_accuracy", metrics.test_accuracy}});
}

absl::Status JsonLinesWriter::Write(absl::Time now, const CommunicationPath& path, Epoch epoch,
                                    Step step) {
  Json algorithms = Json::array();
  for (const AlgorithmInUse& use : path.algorithms) {
    algorithms.push_back({{"collective", use.collective},
                          {"algorithm", use.algorithm},
                          {"least_bytes", use.least_bytes},
                          {"most_bytes", use.most_bytes},
                          {"automatic", use.automatic},
                          {"why", use.why}});
  }
  return AppendLine(*file_, {{"kind", "communication"},
                             {"time", Seconds(now)},
                             {"step", step},
                             {"epoch", epoch},
                             {"transport", path.transport},
                             {"provider", path.provider},
                             {"why", path.why},
                             {"algorithms", std::move(algorithms)}});
}

}  // namespace muster
