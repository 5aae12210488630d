#include "worker/compression/residuals.h"

#include <algorithm>

#include "base/check.h"

namespace muster {

void Residuals::Equip(int64_t count) {
  if (static_cast<int64_t>(carried_.size()) == count) return;
  carried_ = std::vector<float>(static_cast<size_t>(count));
  under_way_ = std::vector<float>(static_cast<size_t>(count));
}

absl::Span<float> Residuals::Contribution(Range range, absl::Span<const float> gradient) {
  const auto offset = static_cast<size_t>(range.offset);
  const auto count = static_cast<size_t>(range.count);
  MUSTER_CHECK_EQ(gradient.size(), count);
  for (size_t i = 0; i < count; ++i) under_way_[offset + i] = carried_[offset + i] + gradient[i];
  return absl::MakeSpan(under_way_).subspan(offset, count);
}

void Residuals::Commit() { carried_.swap(under_way_); }

void Residuals::Take(absl::Span<const float> others) {
  MUSTER_CHECK_EQ(others.size(), carried_.size());
  for (size_t i = 0; i < carried_.size(); ++i) carried_[i] += others[i];
}

void Residuals::Clear() { std::fill(carried_.begin(), carried_.end(), 0.0f); }

}  // namespace muster
