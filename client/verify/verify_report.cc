#include "client/verify/verify_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"

namespace muster {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShownDigits = 12;
constexpr char kRow[] = "%-28s %6s  %-12s  %s";

std::string KillText(const VerifyResult& result) {
  if (!result.killed_after.has_value()) return "";
  return absl::StrCat("; ", KilledWorker(result.run), " killed after step ", *result.killed_after);
}

std::string WhereText(const VerifyResult& result) {
  const std::string& name = result.run.name;
  if (!result.location.has_value()) return absl::StrCat(name, " differs from the reference");
  if (!result.location->first.has_value()) {
    return absl::StrCat(name, " differs from the reference: ", result.location->problem);
  }
  const FirstDifference& first = *result.location->first;
  const ParsedDifference& tensor = first.difference;
  std::string text = absl::StrFormat(
      "%s differs after step %d (%s), which was taken by \"%s\": %s%s", name, first.step,
      first.last_equal == 0 ? "no step before was compared"
                            : absl::StrFormat("equal after step %d", first.last_equal),
      ToString(StrategyAt(result.run, first.step)),
      tensor.of == "optimizer" ? "the optimizer's " : "tensor ", tensor.tensor);
  if (tensor.what == "values") {
    absl::StrAppendFormat(
        &text,
        ", element %d at (%s): %s (%s) in the reference, %s (%s) here; %d of its %d elements "
        "differ",
        tensor.element, absl::StrJoin(tensor.index, ", "), tensor.bits[0], tensor.values[0],
        tensor.bits[1], tensor.values[1], tensor.differing, tensor.elements);
  } else {
    absl::StrAppend(&text, tensor.what == "form" ? " has another form" : " is missing in one");
  }
  return absl::StrFormat("%s, and %d of %d tensors; see muster-checkpoint diff %s %s", text,
                         tensor.differing_tensors, tensor.tensors, first.paths[0], first.paths[1]);
}

Json Text(const std::string& value) { return value.empty() ? Json(nullptr) : Json(value); }

Json DifferenceToJson(const VerifyResult& result) {
  if (!result.location.has_value()) return nullptr;
  if (!result.location->first.has_value())
    return Json::object({{"problem", result.location->problem}});
  const FirstDifference& first = *result.location->first;
  const ParsedDifference& tensor = first.difference;
  Json json = {{"step", first.step},
               {"last_equal_step", first.last_equal},
               {"strategy", ToString(StrategyAt(result.run, first.step))},
               {"tensor", tensor.tensor},
               {"of", tensor.of},
               {"what", tensor.what},
               {"differing_tensors", tensor.differing_tensors},
               {"tensors", tensor.tensors},
               {"checkpoints", first.paths}};
  if (tensor.what != "values") return json;
  json["element"] = tensor.element;
  json["index"] = tensor.index;
  json["bits"] = tensor.bits;
  json["values"] = tensor.values;
  json["differing_elements"] = tensor.differing;
  json["elements"] = tensor.elements;
  return json;
}

int Count(const std::vector<VerifyResult>& results, Verdict verdict) {
  return static_cast<int>(
      std::count_if(results.begin(), results.end(),
                    [verdict](const VerifyResult& result) { return result.verdict == verdict; }));
}

}  // namespace

const char* Name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kReference:
      return "reference";
    case Verdict::kEqual:
      return "equal";
    case Verdict::kDiffers:
      return "differs";
    case Verdict::kFailed:
      return "failed";
    case Verdict::kSkipped:
      return "skipped";
  }
  return "unknown";
}

bool AllEqual(const std::vector<VerifyResult>& results) {
  return Count(results, Verdict::kDiffers) == 0 && Count(results, Verdict::kFailed) == 0 &&
         Count(results, Verdict::kReference) == 1 && Count(results, Verdict::kEqual) > 0;
}

std::string HeadLine() { return absl::StrFormat(kRow, "RUN", "STEPS", "PARAMETERS", "VERDICT"); }

std::string ResultLine(const VerifyResult& result) {
  std::string verdict = Name(result.verdict);
  if (result.verdict == Verdict::kDiffers) verdict = "DIFFERS";
  if (!result.reason.empty()) absl::StrAppend(&verdict, ": ", result.reason);
  return absl::StrFormat(
      kRow, result.run.name, result.verdict == Verdict::kSkipped ? "-" : absl::StrCat(result.steps),
      result.parameters_sha256.empty() ? "-" : result.parameters_sha256.substr(0, kShownDigits),
      verdict);
}

std::vector<std::string> ClosingLines(const std::vector<VerifyResult>& results) {
  std::vector<std::string> lines;
  for (const VerifyResult& result : results) {
    if (result.run.switches.empty()) continue;
    lines.push_back(
        absl::StrCat(result.run.name, ": ", ScheduleText(result.run), KillText(result)));
  }
  for (const VerifyResult& result : results) {
    if (result.verdict == Verdict::kDiffers) lines.push_back(WhereText(result));
  }
  const int equal = Count(results, Verdict::kEqual) + Count(results, Verdict::kReference);
  std::string sum = absl::StrFormat("%d of %d runs have equal bits", equal, results.size());
  for (const Verdict verdict : {Verdict::kDiffers, Verdict::kFailed, Verdict::kSkipped}) {
    if (const int count = Count(results, verdict); count > 0) {
      absl::StrAppendFormat(&sum, ", %d %s", count, Name(verdict));
    }
  }
  lines.push_back(sum);
  return lines;
}

std::string VerifyJson(const std::string& job, const VerifyPlanOptions& options,
                       const std::vector<VerifyResult>& results) {
  Json runs = Json::array();
  for (const VerifyResult& result : results) {
    Json switches = Json::array();
    for (const StrategySwitch& change : result.run.switches) {
      switches.push_back({{"after_step", change.after}, {"strategy", ToString(change.strategy)}});
    }
    runs.push_back({{"name", result.run.name},
                    {"strategy", ToString(result.run.strategy)},
                    {"switches", std::move(switches)},
                    {"killed_worker", Text(KilledWorker(result.run))},
                    {"killed_after_step",
                     result.killed_after.has_value() ? Json(*result.killed_after) : Json(nullptr)},
                    {"verdict", Name(result.verdict)},
                    {"steps", result.steps},
                    {"parameters_sha256", Text(result.parameters_sha256)},
                    {"reason", Text(result.reason)},
                    {"difference", DifferenceToJson(result)}});
  }
  const Json json = {{"job", job},
                     {"workers", options.workers},
                     {"servers", options.servers},
                     {"steps", options.steps},
                     {"seed", options.seed},
                     {"equal", AllEqual(results)},
                     {"runs", std::move(runs)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace muster
