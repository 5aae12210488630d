#include "collectives/schedule/expression.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace muster::schedule_internal {
namespace {

constexpr size_t kMaxTextLength = 400;

}  // namespace

ExpressionId ExpressionPool::Intern(std::vector<ExpressionId> operands) {
  if (any_order_ && operands.size() == 2) std::sort(operands.begin(), operands.end());
  const auto [place, is_new] =
      ids_.try_emplace(operands, static_cast<ExpressionId>(size_ + operands_.size()));
  if (is_new) operands_.push_back(std::move(operands));
  return place->second;
}

ExpressionId ExpressionPool::Reduce(absl::Span<const ExpressionId> operands) {
  MUSTER_CHECK(!operands.empty());
  if (operands == absl::MakeConstSpan(last_operands_)) return last_result_;
  ExpressionId result = operands[0];
  if (rounds_once_ && operands.size() > 1) {
    result = Intern({operands.begin(), operands.end()});
  } else {
    for (const ExpressionId operand : operands.subspan(1)) result = Intern({result, operand});
  }
  last_operands_.assign(operands.begin(), operands.end());
  last_result_ = result;
  return result;
}

ExpressionId ExpressionPool::Canonical(Rank owner) {
  std::vector<ExpressionId> order;
  for (int i = 1; i <= size_; ++i) order.push_back((owner + i) % size_);
  return Reduce(order);
}

const ExpressionPool::Contributions& ExpressionPool::ContributionsOf(ExpressionId id) {
  const auto known = contributions_.find(id);
  if (known != contributions_.end()) return known->second;
  Contributions sum;
  sum.times.assign(size_, 0);
  if (id != kUndefined && id < size_) sum.times[id] = 1;
  if (id >= size_) {
    for (const ExpressionId operand : operands_[id - size_]) {
      const Contributions& part = ContributionsOf(operand);
      for (Rank rank = 0; rank < size_; ++rank) {
        sum.times[rank] = static_cast<uint8_t>(std::min(2, sum.times[rank] + part.times[rank]));
      }
    }
  }
  sum.whole = true;
  for (Rank rank = size_ - 1; rank >= 0; --rank) {
    if (sum.times[rank] > 1) sum.twice = rank;
    sum.whole = sum.whole && sum.times[rank] == 1;
  }
  return contributions_.emplace(id, std::move(sum)).first->second;
}

bool ExpressionPool::IsWhole(ExpressionId id) { return ContributionsOf(id).whole; }

Rank ExpressionPool::TwiceIn(ExpressionId id) { return ContributionsOf(id).twice; }

std::vector<Rank> ExpressionPool::MissingRanks(ExpressionId id) const {
  std::vector<bool> seen(size_ + operands_.size(), false);
  std::vector<ExpressionId> pending;
  const auto visit = [&](ExpressionId next) {
    if (next == kUndefined || seen[next]) return;
    seen[next] = true;
    pending.push_back(next);
  };
  visit(id);
  while (!pending.empty()) {
    const ExpressionId next = pending.back();
    pending.pop_back();
    if (next < size_) continue;
    for (const ExpressionId operand : operands_[next - size_]) visit(operand);
  }
  std::vector<Rank> missing;
  for (Rank rank = 0; rank < size_; ++rank) {
    if (!seen[rank]) missing.push_back(rank);
  }
  return missing;
}

void ExpressionPool::AppendTo(std::string& text, ExpressionId id) const {
  if (text.size() > kMaxTextLength) return;
  if (id < size_) {
    absl::StrAppend(&text, id == kUndefined ? "nothing" : absl::StrCat(id));
    return;
  }
  text += rounds_once_ ? '[' : '(';
  bool first = true;
  for (const ExpressionId operand : operands_[id - size_]) {
    if (!first) text += '+';
    first = false;
    AppendTo(text, operand);
  }
  text += rounds_once_ ? ']' : ')';
}

std::string ExpressionPool::ToString(ExpressionId id) const {
  std::string text;
  AppendTo(text, id);
  if (text.size() > kMaxTextLength) {
    text.resize(kMaxTextLength);
    text += "...";
  }
  return text;
}

}  // namespace muster::schedule_internal
