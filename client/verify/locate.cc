#include "client/verify/locate.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace muster {
namespace {

using nlohmann::json;

// Pairs of reruns at most.
constexpr int kMostProbes = 6;

// The complete checkpoints in a directory: (step, path), in order.
absl::StatusOr<std::vector<std::pair<int64_t, std::string>>> Checkpoints(FileSystem& files,
                                                                         const std::string& root) {
  std::vector<std::pair<int64_t, std::string>> found;
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.ListDirectory(root));
  for (const std::string& name : names) {
    absl::string_view number = name;
    int64_t step = 0;
    if (absl::ConsumePrefix(&number, "step-") && absl::SimpleAtoi(number, &step)) {
      found.emplace_back(step, JoinPath(root, name));
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Compares what both have strictly between `last_equal` and the first difference known, in order,
// and moves these two together.
absl::Status Narrow(FileSystem& files, const LocateOperations& operations, const Rerun& reference,
                    const Rerun& run, int64_t* last_equal, std::optional<FirstDifference>* first) {
  MUSTER_ASSIGN_OR_RETURN(const auto ours, Checkpoints(files, reference.checkpoints));
  MUSTER_ASSIGN_OR_RETURN(const auto theirs, Checkpoints(files, run.checkpoints));
  for (const auto& [step, path] : ours) {
    if (step <= *last_equal) continue;
    if (first->has_value() && step >= (*first)->step) break;
    const auto other = std::find_if(theirs.begin(), theirs.end(),
                                    [step = step](const auto& each) { return each.first == step; });
    if (other == theirs.end()) continue;
    MUSTER_ASSIGN_OR_RETURN(std::optional<ParsedDifference> difference,
                            operations.compare(path, other->second));
    if (!difference.has_value()) {
      *last_equal = step;
      continue;
    }
    *first = FirstDifference{
        .step = step, .difference = *std::move(difference), .paths = {path, other->second}};
    break;
  }
  return absl::OkStatus();
}

absl::StatusOr<Location> Locate(FileSystem& files, const LocateOperations& operations) {
  int64_t last_equal = 0;
  std::optional<FirstDifference> first;
  std::set<int64_t> tried;
  int64_t every = 1;
  for (int probe = 0; probe < kMostProbes; ++probe) {
    tried.insert(every);
    MUSTER_ASSIGN_OR_RETURN(const Rerun reference, operations.reference(every));
    MUSTER_ASSIGN_OR_RETURN(const Rerun run, operations.run(every));
    if (probe == 0 && reference.parameters_sha256 == run.parameters_sha256) {
      return Location{.problem =
                          "a rerun with checkpoints ended with equal bits, so the difference "
                          "does not come every time and its place is not known"};
    }
    MUSTER_RETURN_IF_ERROR(Narrow(files, operations, reference, run, &last_equal, &first));
    if (!first.has_value()) {
      return Location{.problem = absl::StrCat("no checkpoint that both reruns have differs, in ",
                                              reference.checkpoints, " and ", run.checkpoints)};
    }
    // The step nearest to the middle whose distance has not been tried: that would only leave the
    // same gaps.
    const int64_t middle = last_equal + (first->step - last_equal) / 2;
    every = 0;
    for (int64_t step = last_equal + 1; step < first->step; ++step) {
      const bool nearer = every == 0 || std::abs(step - middle) < std::abs(every - middle);
      if (nearer && !tried.contains(step)) every = step;
    }
    if (every == 0) break;
  }
  first->last_equal = last_equal;
  return Location{.first = std::move(first)};
}

std::string Text(const json& value) {
  return value.is_number() ? absl::StrFormat("%.9g", value.get<double>()) : "not finite";
}

}  // namespace

absl::StatusOr<std::optional<ParsedDifference>> ParseDifference(absl::string_view text) {
  const json read = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  const auto bad = [&] {
    return absl::InternalError(absl::StrCat(
        "muster-checkpoint diff: expected its JSON object, got \"", text.substr(0, 200), "\""));
  };
  if (!read.is_object() || !read.contains("equal") || !read.contains("differences")) return bad();
  if (read["equal"] == true) return std::optional<ParsedDifference>();
  const json& differences = read["differences"];
  if (!differences.is_array() || differences.empty()) return bad();
  const json& first = differences.front();
  const auto text_of = [&first](const char* key) {
    const auto found = first.find(key);
    return found != first.end() && found->is_string() ? found->get<std::string>() : "";
  };
  const auto number_of = [](const json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
  };
  if (!first.is_object()) return bad();
  ParsedDifference parsed;
  parsed.tensor = text_of("tensor");
  parsed.of = text_of("of");
  parsed.what = text_of("what");
  parsed.differing_tensors = static_cast<int64_t>(differences.size());
  parsed.tensors = number_of(read, "tensors");
  if (parsed.tensor.empty()) return bad();
  if (parsed.what != "values") return std::make_optional(std::move(parsed));
  parsed.element = number_of(first, "first");
  parsed.differing = number_of(first, "differing");
  parsed.elements = number_of(first, "elements");
  for (const char* key : {"index", "bits", "values"}) {
    if (!first.contains(key) || !first[key].is_array()) return bad();
  }
  for (const json& each : first["index"]) {
    if (!each.is_number_integer()) return bad();
    parsed.index.push_back(each.get<int64_t>());
  }
  if (first["bits"].size() != 2 || first["values"].size() != 2) return bad();
  for (size_t i = 0; i < 2; ++i) {
    if (!first["bits"][i].is_string()) return bad();
    parsed.bits[i] = first["bits"][i].get<std::string>();
    parsed.values[i] = Text(first["values"][i]);
  }
  return std::make_optional(std::move(parsed));
}

Location LocateDifference(FileSystem& files, const LocateOperations& operations) {
  absl::StatusOr<Location> location = Locate(files, operations);
  if (location.ok()) return *std::move(location);
  return Location{.problem = absl::StrCat("it could not be located: ",
                                          std::string(location.status().message()))};
}

}  // namespace muster
