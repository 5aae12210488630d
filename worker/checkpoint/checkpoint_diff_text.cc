// The part of checkpoint_diff.h that writes text.
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "worker/checkpoint/checkpoint_diff.h"

namespace muster {
namespace {

using Json = nlohmann::ordered_json;

std::string Tuple(const std::vector<int64_t>& numbers) {
  return absl::StrCat("(", absl::StrJoin(numbers, ", "), ")");
}

std::string FormText(const TensorForm& form) {
  return absl::StrCat(std::string(Name(form.dtype)), " ", Tuple(form.shape));
}

// As many digits as tell neighbours apart.
std::string ValueText(double value, DType dtype) {
  return absl::StrFormat("%.*g", dtype == DType::kF64 || dtype == DType::kI64 ? 17 : 9, value);
}

std::string BitsText(uint64_t bits, DType dtype) {
  return absl::StrFormat("0x%0*x", 2 * static_cast<int>(SizeOf(dtype)), bits);
}

Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

std::string TensorLine(const TensorDifference& difference) {
  const auto& [first, second] = difference.forms;
  const std::string what =
      absl::StrCat(difference.kind == CheckpointFileKind::kOptimizer ? "optimizer's " : "",
                   difference.name, ": ");
  if (!first.has_value()) return absl::StrCat(what, "only in the second, ", FormText(*second));
  if (!second.has_value()) return absl::StrCat(what, "only in the first, ", FormText(*first));
  if (*first != *second) {
    return absl::StrCat(what, FormText(*first), " and ", FormText(*second));
  }
  const DType dtype = first->dtype;
  return absl::StrFormat(
      "%s%s: %d of %d elements, by %.3g at most; first at %s (element %d): %s (%s) and %s (%s)",
      what, FormText(*first), difference.differing, difference.elements, difference.largest,
      Tuple(difference.index), difference.first, BitsText(difference.bits[0], dtype),
      ValueText(difference.values[0], dtype), BitsText(difference.bits[1], dtype),
      ValueText(difference.values[1], dtype));
}

Json TensorJson(const TensorDifference& difference) {
  const auto& [first, second] = difference.forms;
  const auto form = [](const std::optional<TensorForm>& present) {
    return present.has_value() ? Json(FormText(*present)) : Json(nullptr);
  };
  Json json = {
      {"tensor", difference.name},
      {"of", difference.kind == CheckpointFileKind::kOptimizer ? "optimizer" : "parameters"},
      {"what", !first.has_value() || !second.has_value() ? "missing"
               : *first != *second                       ? "form"
                                                         : "values"},
      {"forms", {form(first), form(second)}}};
  if (difference.differing == 0) return json;
  const DType dtype = first->dtype;
  json["elements"] = difference.elements;
  json["differing"] = difference.differing;
  json["first"] = difference.first;
  json["index"] = difference.index;
  json["bits"] = {BitsText(difference.bits[0], dtype), BitsText(difference.bits[1], dtype)};
  json["values"] = {Number(difference.values[0]), Number(difference.values[1])};
  json["largest"] = Number(difference.largest);
  return json;
}

}  // namespace

std::vector<std::string> DifferenceLines(const CheckpointDifference& difference) {
  const std::string both =
      absl::StrFormat("%s (step %d) and %s (step %d)", difference.paths[0], difference.steps[0],
                      difference.paths[1], difference.steps[1]);
  if (difference.equal()) {
    return {absl::StrFormat("%s are equal bit for bit: %d tensors, %d elements", both,
                            difference.tensors, difference.elements)};
  }
  std::vector<std::string> lines = {absl::StrFormat(
      "%s: %d of %d tensors differ", both, difference.differences.size(), difference.tensors)};
  for (const TensorDifference& each : difference.differences) lines.push_back(TensorLine(each));
  return lines;
}

std::string DifferenceJson(const CheckpointDifference& difference) {
  Json json = {{"equal", difference.equal()},
               {"checkpoints", Json::array()},
               {"tensors", difference.tensors},
               {"elements", difference.elements},
               {"differences", Json::array()}};
  for (size_t i = 0; i < 2; ++i) {
    json["checkpoints"].push_back({{"path", difference.paths[i]}, {"step", difference.steps[i]}});
  }
  for (const TensorDifference& each : difference.differences) {
    json["differences"].push_back(TensorJson(each));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace muster
