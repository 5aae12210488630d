// Sums as symbols: hash-consed expressions over the ranks' contributions, so that two sums are
// computed alike, bit by bit, exactly when their ids are equal. Two operands may be exchanged (IEEE
// operations commute, apart from the payload of a NaN) where the order is not to be proved. Used by
// the checker only. Not thread-safe.
#ifndef MUSTER_COLLECTIVES_SCHEDULE_EXPRESSION_H_
#define MUSTER_COLLECTIVES_SCHEDULE_EXPRESSION_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"

namespace muster::schedule_internal {

// The contribution of rank r is expression r. Larger ids are sums; -1 is no value.
using ExpressionId = int32_t;
inline constexpr ExpressionId kUndefined = -1;

class ExpressionPool {
 public:
  // `rounds_once`: a reduction of several operands is rounded once at its end (16-bit types), so
  // that it differs from the same reduction made in two steps. `any_order`: a + b is b + a.
  ExpressionPool(int size, bool rounds_once, bool any_order)
      : size_(size), rounds_once_(rounds_once), any_order_(any_order) {}

  // operands[0] (+) operands[1] (+) ..., left to right, in one step. Requires: at least one.
  ExpressionId Reduce(absl::Span<const ExpressionId> operands);
  // owner + 1, owner + 2, ..., owner (mod size) in one go: what the chunk of `owner` must be.
  ExpressionId Canonical(Rank owner);
  // Every rank contributes to it, once.
  bool IsWhole(ExpressionId id);
  // A rank that contributes to it more than once; -1: none.
  Rank TwiceIn(ExpressionId id);
  // Ranks that do not occur in the expression.
  std::vector<Rank> MissingRanks(ExpressionId id) const;
  // "((1+2)+0)"; "[1+2+0]" where rounded once; cut off where it gets long.
  std::string ToString(ExpressionId id) const;

 private:
  // How often each rank contributes, up to two.
  struct Contributions {
    std::vector<uint8_t> times;  // by rank
    Rank twice = -1;
    bool whole = false;
  };

  ExpressionId Intern(std::vector<ExpressionId> operands);
  const Contributions& ContributionsOf(ExpressionId id);
  void AppendTo(std::string& text, ExpressionId id) const;

  const int size_;
  const bool rounds_once_;
  const bool any_order_;
  std::map<std::vector<ExpressionId>, ExpressionId> ids_;
  std::vector<std::vector<ExpressionId>> operands_;  // of expression size_ + index
  std::map<ExpressionId, Contributions> contributions_;
  // Neighbouring elements mostly ask for the same sum.
  std::vector<ExpressionId> last_operands_;
  ExpressionId last_result_ = kUndefined;
};

}  // namespace muster::schedule_internal

#endif  // MUSTER_COLLECTIVES_SCHEDULE_EXPRESSION_H_
