#include "server/parameter_server/core/row_store.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "base/check.h"
#include "state/initialize.h"

namespace muster {
namespace {

// Floats of a slab of rows: 256 KiB, or one row.
constexpr int64_t kSlabFloats = int64_t{1} << 16;

}  // namespace

RowStore::RowStore(const Layout& layout, uint64_t seed, Range range, const UpdateRule& rule,
                   BufferPool& pool, MemoryAccount& account)
    : layout_(layout),
      seed_(seed),
      range_(range),
      width_(layout.tensors()[0].spec.shape[1]),
      rule_(rule),
      floats_per_row_(width_ * (1 + rule.state_slots())),
      rows_per_slab_(std::max<int64_t>(1, kSlabFloats / floats_per_row_)),
      pool_(pool),
      account_(account) {}

RowStore::~RowStore() { Clear(); }

void RowStore::Clear() {
  account_.Return(row_count() * kIndexBytes);
  index_ = {};
  slabs_.clear();
  bytes_ = 0;
}

bool RowStore::Touch(absl::Span<const int64_t> rows) {
  for (const int64_t row : rows) {
    MUSTER_CHECK(row >= range_.offset && row < range_.end()) << row;
    if (index_.contains(row)) continue;
    const int64_t place = row_count();
    if (place == static_cast<int64_t>(slabs_.size()) * rows_per_slab_) {
      PooledFloats slab = pool_.TryTake(rows_per_slab_ * floats_per_row_);
      if (!slab) return false;
      bytes_ += slab.bytes();
      slabs_.push_back(std::move(slab));
    }
    if (!account_.TryTake(kIndexBytes)) return false;
    bytes_ += kIndexBytes;
    index_.emplace(row, place);
    float* const floats = PlaceOf(row);
    InitializeElements(layout_.tensors()[0], seed_, row * width_,
                       absl::MakeSpan(floats, static_cast<size_t>(width_)));
    std::fill(floats + width_, floats + floats_per_row_, 0.0f);
  }
  return true;
}

float* RowStore::PlaceOf(int64_t row) const {
  const auto it = index_.find(row);
  MUSTER_CHECK(it != index_.end()) << "row " << row << " does not exist";
  const PooledFloats& slab = slabs_[static_cast<size_t>(it->second / rows_per_slab_)];
  return const_cast<float*>(slab.data()) + it->second % rows_per_slab_ * floats_per_row_;
}

void RowStore::Read(int64_t row, absl::Span<float> values) const {
  if (!index_.contains(row)) {
    InitializeElements(layout_.tensors()[0], seed_, row * width_, values);
    return;
  }
  const absl::Span<const float> from = Array(row, 0);
  std::copy(from.begin(), from.end(), values.begin());
}

void RowStore::Apply(int64_t row, const UpdateScalars& scalars, absl::Span<const float> gradient) {
  absl::InlinedVector<absl::Span<float>, 2> slots;
  for (int i = 0; i < rule_.state_slots(); ++i) slots.push_back(MutableArray(row, i + 1));
  rule_.Apply({.offset = row * width_, .count = width_}, scalars, MutableArray(row, 0), gradient,
              slots);
}

std::vector<int64_t> RowStore::Rows() const {
  std::vector<int64_t> rows;
  rows.reserve(index_.size());
  for (const auto& [row, place] : index_) rows.push_back(row);
  std::sort(rows.begin(), rows.end());
  return rows;
}

absl::Span<const float> RowStore::Array(int64_t row, int array) const {
  return {PlaceOf(row) + array * width_, static_cast<size_t>(width_)};
}

absl::Span<float> RowStore::MutableArray(int64_t row, int array) {
  return {PlaceOf(row) + array * width_, static_cast<size_t>(width_)};
}

}  // namespace muster
