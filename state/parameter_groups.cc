#include "state/parameter_groups.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace muster {
namespace {

// For people: the first names, and how many more there are.
std::string SomeNames(absl::Span<TensorSpec> tensors) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < tensors.size() && i < kShown; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", tensors[i].name);
  }
  if (tensors.size() > kShown) absl::StrAppend(&text, " and ", tensors.size() - kShown, " more");
  return text;
}

}  // namespace

bool MatchesPattern(absl::string_view pattern, absl::string_view name) {
  size_t p = 0, n = 0;
  // Where to go on when a character does not fit: behind the last '*', which takes one more. An
  // earlier '*' never has to be tried again, so the time is at most the product of the lengths.
  std::optional<size_t> star;
  size_t star_end = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_end = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star.has_value()) {
      p = *star + 1;
      n = ++star_end;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

absl::Status ApplyParameterGroups(absl::Span<const ParameterGroupSpec> groups,
                                  absl::Span<TensorSpec> tensors) {
  std::vector<bool> taken(tensors.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    const ParameterGroupSpec& group = groups[g];
    std::vector<bool> matched(tensors.size());
    for (size_t i = 0; i < group.tensors.size(); ++i) {
      bool any = false;
      for (size_t t = 0; t < tensors.size(); ++t) {
        if (!MatchesPattern(group.tensors[i], tensors[t].name)) continue;
        any = matched[t] = true;
      }
      if (!any) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "training.optimizer.groups[%d].tensors[%d]: \"%s\" matches no tensor of the model, "
            "whose tensors are %s",
            g, i, group.tensors[i], SomeNames(tensors)));
      }
    }
    bool used = false;
    for (size_t t = 0; t < tensors.size(); ++t) {
      if (!matched[t] || taken[t]) continue;
      taken[t] = used = true;
      if (group.weight_decay.has_value()) tensors[t].weight_decay = group.weight_decay;
      tensors[t].learning_rate_scale = group.learning_rate_scale;
      tensors[t].frozen = group.frozen;
    }
    if (!used) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "training.optimizer.groups[%d]: has no tensor; all that it matches are in earlier "
          "groups, and the first group that matches has a tensor",
          g));
    }
  }
  if (absl::c_all_of(tensors, [](const TensorSpec& tensor) { return tensor.frozen; })) {
    return absl::InvalidArgumentError(
        "training.optimizer.groups: all tensors of the model are frozen; leave one to train");
  }
  return absl::OkStatus();
}

}  // namespace muster
