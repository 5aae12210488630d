#include "client/output/operations_text.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/text.h"
#include "client/output/job_text.h"
#include "client/output/message_json.h"
#include "google/protobuf/util/time_util.h"
#include "nlohmann/json.hpp"

namespace muster {
namespace {

// What comes from a worker ends up on a terminal.
constexpr size_t kMaxCellBytes = 400;
std::string Cell(const std::string& text) { return TextForPeople(text, kMaxCellBytes); }

int FirstOf(const v1::WorkerOperations& operations, size_t last) {
  const auto size = static_cast<size_t>(operations.operations_size());
  return static_cast<int>(size - std::min(size, last));
}

std::string Microseconds(double us) {
  if (us < 1'000) return absl::StrFormat("%.0f us", us);
  if (us < 1e6) return absl::StrFormat("%.1f ms", us / 1e3);
  return absl::StrFormat("%.1f s", us / 1e6);
}

}  // namespace

std::string OperationTable(const v1::GetOperationsResponse& response, size_t last) {
  const v1::WorkerOperations& operations = response.operations();
  std::vector<std::vector<std::string>> rows = {
      {"NUMBER", "ISSUED", "STEP", "LABEL", "STATE", "QUEUED", "RUNNING", "WHAT"}};
  for (int i = FirstOf(operations, last); i < operations.operations_size(); ++i) {
    const v1::Operation& operation = operations.operations(i);
    std::string what = Cell(operation.what());
    if (!operation.error().empty()) absl::StrAppend(&what, ": ", Cell(operation.error()));
    rows.push_back({absl::StrCat(operation.number()),
                    google::protobuf::util::TimeUtil::ToString(operation.issued()),
                    operation.step() == 0 ? "-" : absl::StrCat(operation.step()),
                    operation.label().empty() ? "-" : Cell(operation.label()),
                    absl::AsciiStrToLower(v1::Operation::State_Name(operation.state())),
                    Microseconds(operation.queued_us()),
                    operation.has_running_us() ? Microseconds(operation.running_us()) : "-",
                    std::move(what)});
  }
  std::string text = absl::StrCat("rank ", response.rank(), " (", Cell(response.worker()),
                                  "), epoch ", operations.epoch());
  if (rows.size() == 1) return absl::StrCat(text, ": no operations yet\n");
  return absl::StrCat(text, "\n", FormatTable(rows));
}

std::vector<std::string> OperationLines(const v1::GetOperationsResponse& response, size_t last) {
  const v1::WorkerOperations& operations = response.operations();
  std::vector<std::string> lines;
  for (int i = FirstOf(operations, last); i < operations.operations_size(); ++i) {
    nlohmann::ordered_json line = {
        {"rank", response.rank()}, {"worker", response.worker()}, {"epoch", operations.epoch()}};
    line.update(nlohmann::ordered_json::parse(MessageToJson(operations.operations(i))));
    lines.push_back(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  }
  return lines;
}

}  // namespace muster
