#include "client/job/closest_name.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace muster {
namespace {

// Shorter parts of a name are too common to mean anything.
constexpr size_t kLeastPart = 4;

}  // namespace

int EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::string Suggestion(absl::string_view wrong, const std::vector<std::string>& names) {
  // Nobody mistypes a name of this length, and the distance costs the product of the lengths.
  const std::string lower = absl::AsciiStrToLower(wrong.substr(0, 64));
  const std::string* best = nullptr;
  int best_distance = std::max<int>(2, static_cast<int>(lower.size()) / 3) + 1;
  for (const std::string& name : names) {
    const int distance = EditDistance(lower, absl::AsciiStrToLower(name));
    if (distance < best_distance) {
      best_distance = distance;
      best = &name;
    }
  }
  if (best == nullptr && lower.size() >= kLeastPart) {
    for (const std::string& name : names) {
      if (absl::StrContains(name, lower) ||
          (name.size() >= kLeastPart && absl::StrContains(lower, name))) {
        best = &name;
        break;
      }
    }
  }
  if (best != nullptr) return absl::StrCat("did you mean \"", *best, "\"?");
  return absl::StrCat("expected one of ", absl::StrJoin(names, ", "));
}

}  // namespace muster
