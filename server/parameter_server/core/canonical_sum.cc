#include "server/parameter_server/core/canonical_sum.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "collectives/reduce/reduce.h"
#include "state/bucket_slices.h"

namespace muster {
namespace {

// Slices of a layout: bounds what a spec from outside can make a server compute.
constexpr int64_t kMaxSlices = int64_t{1} << 24;

Range Intersection(Range a, Range b) {
  const int64_t begin = std::max(a.offset, b.offset);
  const int64_t end = std::min(a.end(), b.end());
  return {.offset = begin, .count = std::max<int64_t>(0, end - begin)};
}

}  // namespace

absl::StatusOr<CanonicalSum> CanonicalSum::Create(const Layout& layout, Range range,
                                                  int64_t segment_elements,
                                                  const Contributions& contributions,
                                                  BufferPool& pool, absl::Span<float> sum) {
  const auto buckets = static_cast<int64_t>(layout.buckets().size());
  if (buckets * contributions.contributors() > kMaxSlices) {
    return absl::InvalidArgumentError(
        absl::StrCat("bucket_elements: ", buckets, " buckets among ", contributions.contributors(),
                     " contributors are more than ", kMaxSlices, " slices; use larger buckets"));
  }
  MUSTER_ASSIGN_OR_RETURN(const BucketSlices slices,
                          BucketSlices::Even(layout, contributions.contributors()));
  MUSTER_CHECK_EQ(static_cast<int64_t>(sum.size()), range.count);
  CanonicalSum result(contributions, pool, sum, range.offset);
  auto tensor = layout.tensors().begin();
  for (const OwnedRange& piece : slices.PiecesOf(range)) {
    while (tensor != layout.tensors().end() &&
           tensor->offset + tensor->count <= piece.range.offset) {
      ++tensor;
    }
    for (auto t = tensor; t != layout.tensors().end() && t->offset < piece.range.end(); ++t) {
      if (t->spec.frozen) continue;
      const Range part = Intersection(piece.range, {t->offset, t->count});
      for (int64_t at = part.offset; at < part.end();) {
        const int64_t segment = (at - range.offset) / segment_elements;
        const int64_t end = std::min(part.end(), range.offset + (segment + 1) * segment_elements);
        result.units_.push_back({.range = {.offset = at, .count = end - at},
                                 .owner = piece.owner,
                                 .segment = static_cast<int32_t>(segment)});
        at = end;
      }
    }
  }
  for (Unit& unit : result.units_) result.SkipEmptyShares(unit);
  return result;
}

CanonicalSum::CanonicalSum(const Contributions& contributions, BufferPool& pool,
                           absl::Span<float> sum, int64_t base)
    : contributions_(contributions),
      has_empty_shares_(contributions.micro_batches() < contributions.contributors()),
      pool_(&pool),
      sum_(sum),
      base_(base) {}

CanonicalSum::UnitSpan CanonicalSum::UnitsIn(Range range) const {
  const auto first = std::partition_point(units_.begin(), units_.end(), [&](const Unit& unit) {
    return unit.range.end() <= range.offset;
  });
  const auto last = std::partition_point(
      first, units_.end(), [&](const Unit& unit) { return unit.range.offset < range.end(); });
  return {.first = static_cast<int>(first - units_.begin()),
          .last = static_cast<int>(last - units_.begin())};
}

int64_t CanonicalSum::BytesOfPartialSums() const {
  int64_t bytes = 0;
  int64_t largest = 0;
  for (const Unit& unit : units_) {
    bytes += BufferPool::BytesFor(unit.range.count);
    largest = std::max(largest, BufferPool::BytesFor(unit.range.count));
  }
  return bytes * (contributions_.contributors() - 1) + largest * contributions_.contributors();
}

int32_t CanonicalSum::PositionOf(const Unit& unit, int32_t contributor) const {
  const int32_t n = contributions_.contributors();
  return (contributor - unit.owner - 1 + n) % n;
}

int32_t CanonicalSum::ContributorAt(const Unit& unit, int32_t position) const {
  return (unit.owner + 1 + position) % contributions_.contributors();
}

int32_t CanonicalSum::SummedOf(const Unit& unit, int32_t contributor) const {
  if (PositionOf(unit, contributor) < unit.folded) {
    return contributions_.ShareOf(contributor).count();
  }
  for (const Partial& partial : unit.partials) {
    if (partial.contributor == contributor) return partial.next;
  }
  return 0;
}

bool CanonicalSum::Received(int unit_index, int32_t micro_batch, Range part) const {
  const Unit& unit = units_[unit_index];
  const int32_t contributor = contributions_.ContributorOf(micro_batch);
  const int32_t index = micro_batch - contributions_.ShareOf(contributor).first;
  if (index < SummedOf(unit, contributor)) return true;
  for (const Staged& staged : unit.staged) {
    if (staged.micro_batch == micro_batch) return staged.have.Contains(part);
  }
  return false;
}

bool CanonicalSum::MustHold(int unit_index, int32_t micro_batch, Range part) const {
  const Unit& unit = units_[unit_index];
  const int32_t contributor = contributions_.ContributorOf(micro_batch);
  const MicroBatchShare share = contributions_.ShareOf(contributor);
  // Memory that is there already is used, and who is first in order needs one array at most.
  for (const Staged& staged : unit.staged) {
    if (staged.micro_batch == micro_batch) return false;
  }
  const int32_t summed = SummedOf(unit, contributor);
  if (micro_batch - share.first != summed) return true;
  if (PositionOf(unit, contributor) == unit.folded) return false;
  return part != unit.range || summed == 0;
}

PooledFloats CanonicalSum::Hold(const Unit& unit) {
  PooledFloats values = pool_->Take(unit.range.count);
  held_bytes_ += values.bytes();
  return values;
}

void CanonicalSum::Unhold(PooledFloats values) { held_bytes_ -= values.bytes(); }

absl::Span<float> CanonicalSum::SumOf(const Unit& unit) {
  return sum_.subspan(unit.range.offset - base_, unit.range.count);
}

void CanonicalSum::Source::CopyTo(absl::Span<float> target) const {
  if (bytes != nullptr) {
    bytes->CopyTo(first, target);
  } else {
    std::memcpy(target.data(), values.data(), values.size() * sizeof(float));
  }
}

void CanonicalSum::Source::AddTo(absl::Span<float> target) const {
  if (bytes != nullptr) {
    bytes->AddTo(first, target);
  } else {
    ReduceInto(DType::kF32, ReduceOp::kSum, target.data(), target.data(), values.data(),
               static_cast<int64_t>(values.size()));
  }
}

void CanonicalSum::Add(int unit_index, int32_t micro_batch, Range part, const GradientBytes& values,
                       int64_t offset) {
  Unit& unit = units_[unit_index];
  MUSTER_CHECK(part.count > 0 && unit.range.Contains(part));
  if (Received(unit_index, micro_batch, part)) return;
  const int32_t contributor = contributions_.ContributorOf(micro_batch);
  const int32_t index = micro_batch - contributions_.ShareOf(contributor).first;
  const bool next = index == SummedOf(unit, contributor);

  auto staged = std::find_if(unit.staged.begin(), unit.staged.end(),
                             [&](const Staged& s) { return s.micro_batch == micro_batch; });
  if (staged == unit.staged.end()) {
    if (next && part == unit.range) {
      Take(unit, micro_batch, {.bytes = &values, .first = part.offset - offset});
      TakeStaged(unit, contributor);
      Fold(unit);
      return;
    }
    unit.staged.push_back({.micro_batch = micro_batch, .values = Hold(unit)});
    staged = std::prev(unit.staged.end());
  }
  staged->have.ForEachMissing(part, [&](Range missing) {
    values.CopyTo(missing.offset - offset,
                  staged->values.span().subspan(missing.offset - unit.range.offset, missing.count));
  });
  staged->have.Add(part);
  TakeStaged(unit, contributor);
  Fold(unit);
}

void CanonicalSum::Take(Unit& unit, int32_t micro_batch, const Source& source) {
  const int32_t contributor = contributions_.ContributorOf(micro_batch);
  const MicroBatchShare share = contributions_.ShareOf(contributor);
  const bool current = PositionOf(unit, contributor) == unit.folded;
  if (current && share.count() == 1) {
    if (unit.any) {
      source.AddTo(SumOf(unit));
    } else {
      source.CopyTo(SumOf(unit));
    }
    unit.any = true;
    ++unit.folded;
    ++folds_;
    return;
  }
  auto partial = std::find_if(unit.partials.begin(), unit.partials.end(),
                              [&](const Partial& p) { return p.contributor == contributor; });
  if (partial == unit.partials.end()) {
    unit.partials.push_back({.contributor = contributor});
    partial = std::prev(unit.partials.end());
    if (!current || unit.any) partial->values = Hold(unit);
    source.CopyTo(partial->values ? partial->values.span() : SumOf(unit));
  } else {
    source.AddTo(partial->values ? partial->values.span() : SumOf(unit));
  }
  ++partial->next;
}

// What of this contributor waits for its turn and has it now.
void CanonicalSum::TakeStaged(Unit& unit, int32_t contributor) {
  const MicroBatchShare share = contributions_.ShareOf(contributor);
  for (;;) {
    const int32_t micro_batch = share.first + SummedOf(unit, contributor);
    const auto staged = std::find_if(unit.staged.begin(), unit.staged.end(), [&](const Staged& s) {
      return s.micro_batch == micro_batch && s.have.Contains(unit.range);
    });
    if (micro_batch == share.last || staged == unit.staged.end()) return;
    const bool current = PositionOf(unit, contributor) == unit.folded;
    if (share.count() == 1 && !current) {
      // Its memory becomes the contributor's sum as it is.
      unit.partials.push_back(
          {.contributor = contributor, .next = 1, .values = std::move(staged->values)});
      unit.staged.erase(staged);
      return;
    }
    PooledFloats values = std::move(staged->values);
    unit.staged.erase(staged);
    Take(unit, micro_batch, {.values = std::as_const(values).span()});
    Unhold(std::move(values));
  }
}

void CanonicalSum::SkipEmptyShares(Unit& unit) const {
  while (unit.folded < contributions_.contributors() &&
         contributions_.ShareOf(ContributorAt(unit, unit.folded)).count() == 0) {
    ++unit.folded;
  }
}

void CanonicalSum::Fold(Unit& unit) {
  const int32_t n = contributions_.contributors();
  for (SkipEmptyShares(unit); unit.folded < n; SkipEmptyShares(unit)) {
    const int32_t contributor = ContributorAt(unit, unit.folded);
    const int32_t count = contributions_.ShareOf(contributor).count();
    const auto partial =
        std::find_if(unit.partials.begin(), unit.partials.end(),
                     [&](const Partial& p) { return p.contributor == contributor; });
    if (partial == unit.partials.end() || partial->next < count) break;
    if (partial->values) {
      const Source source = {.values = std::as_const(partial->values).span()};
      if (unit.any) {
        source.AddTo(SumOf(unit));
      } else {
        source.CopyTo(SumOf(unit));
      }
      Unhold(std::move(partial->values));
    }
    unit.any = true;
    unit.partials.erase(partial);
    ++unit.folded;
    ++folds_;
  }
  if (unit.folded == n && has_empty_shares_) {
    for (float& value : SumOf(unit)) value += 0.0f;
  }
}

void CanonicalSum::Reset(int unit_index) {
  Unit& unit = units_[unit_index];
  for (Partial& partial : unit.partials) {
    if (partial.values) Unhold(std::move(partial.values));
  }
  for (Staged& staged : unit.staged) Unhold(std::move(staged.values));
  unit.partials.clear();
  unit.staged.clear();
  unit.folded = 0;
  unit.any = false;
  SkipEmptyShares(unit);
}

}  // namespace muster
