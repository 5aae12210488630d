#include "worker/metrics/operation_log.h"

#include <algorithm>

#include "absl/time/time.h"
#include "nlohmann/json.hpp"

namespace muster {

std::string OperationsAsJsonLines(absl::Span<const OperationRecord> records, absl::Time now) {
  const auto microseconds = [](absl::Duration duration) {
    return absl::ToDoubleMicroseconds(duration);
  };
  std::string lines;
  for (const OperationRecord& record : records) {
    const bool started = record.started_at != absl::InfiniteFuture();
    const absl::Time ended = std::min(record.ended_at, now);
    nlohmann::ordered_json line = {
        {"number", record.number},
        {"what", record.what},
        {"label", record.label},
        {"step", record.step},
        {"state", Name(record.state)},
        {"issued", absl::FormatTime(absl::RFC3339_full, record.issued_at, absl::UTCTimeZone())},
        {"queued_us", microseconds(std::min(record.started_at, ended) - record.issued_at)}};
    if (started) line["running_us"] = microseconds(ended - record.started_at);
    if (!record.status.ok()) line["error"] = record.status.ToString();
    // Labels are the caller's and need not be UTF-8.
    lines += line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    lines += '\n';
  }
  return lines;
}

}  // namespace muster
