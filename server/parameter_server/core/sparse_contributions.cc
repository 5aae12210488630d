#include "server/parameter_server/core/sparse_contributions.h"

#include <utility>

#include "base/check.h"
#include "collectives/reduce/reduce.h"

namespace muster {

void RowSums::Add(int64_t row, absl::Span<const float> values) {
  const auto [it, is_new] = index_.try_emplace(row, rows_.size());
  if (is_new) {
    rows_.push_back(row);
    values_.insert(values_.end(), values.begin(), values.end());
    return;
  }
  float* const sum = values_.data() + it->second * static_cast<size_t>(width_);
  ReduceInto(DType::kF32, ReduceOp::kSum, sum, sum, values.data(), width_);
}

void RowSums::Add(const RowSums& other) {
  for (size_t i = 0; i < other.rows_.size(); ++i) Add(other.rows_[i], other.values(i));
}

SparseContributions::SparseContributions(const Contributions& contributions, int64_t width,
                                         BufferPool& pool, MemoryAccount& account)
    : contributions_(contributions), width_(width), pool_(pool), account_(account) {}

const SparseContributions::Push* SparseContributions::Find(int32_t micro_batch) const {
  const auto it = pushes_.find(micro_batch);
  return it == pushes_.end() ? nullptr : &it->second;
}

int64_t SparseContributions::BytesFor(int64_t rows) const {
  if (rows == 0) return 0;
  return BufferPool::BytesFor(rows * width_) + rows * static_cast<int64_t>(sizeof(int64_t));
}

const SparseContributions::Push& SparseContributions::Add(const SparsePush& push,
                                                          absl::Span<const int64_t> rows) {
  Push& under_way = pushes_[push.id.micro_batch];
  if (under_way.chunks.empty()) {
    under_way.step = push.id.step;
    under_way.samples = push.samples;
    under_way.chunk_count = push.chunk_count;
  }
  MUSTER_CHECK(under_way.step == push.id.step && under_way.chunk_count == push.chunk_count);
  const auto [it, is_new] = under_way.chunks.try_emplace(push.chunk);
  MUSTER_CHECK(is_new) << "chunk " << push.chunk << " is here";
  Push::Chunk& chunk = it->second;
  if (!rows.empty()) {
    chunk.rows.assign(rows.begin(), rows.end());
    chunk.row_bytes = TakenBytes(account_, static_cast<int64_t>(rows.size() * sizeof(int64_t)));
    chunk.values = pool_.Take(static_cast<int64_t>(rows.size()) * width_);
    push.values.CopyTo(0, chunk.values.span());
  }
  held_bytes_ += BytesFor(static_cast<int64_t>(rows.size()));
  if (under_way.complete()) ++complete_;
  return under_way;
}

void SparseContributions::Remove(int32_t micro_batch) {
  const auto it = pushes_.find(micro_batch);
  if (it == pushes_.end()) return;
  for (const auto& [number, chunk] : it->second.chunks) {
    held_bytes_ -= BytesFor(static_cast<int64_t>(chunk.rows.size()));
  }
  if (it->second.complete()) --complete_;
  pushes_.erase(it);
}

void SparseContributions::Clear() {
  pushes_.clear();
  complete_ = 0;
  held_bytes_ = 0;
}

int64_t SparseContributions::SamplesOfStep() const {
  int64_t samples = 0;
  for (const auto& [micro_batch, push] : pushes_) {
    if (push.complete()) samples += push.samples;
  }
  return samples;
}

RowSums SparseContributions::SumOfPush(int32_t micro_batch, int64_t* merged) const {
  RowSums sums(width_);
  const Push& push = pushes_.at(micro_batch);
  int64_t came = 0;
  for (const auto& [number, chunk] : push.chunks) {
    for (size_t i = 0; i < chunk.rows.size(); ++i) {
      sums.Add(chunk.rows[i], chunk.values.span().subspan(i * static_cast<size_t>(width_), width_));
    }
    came += static_cast<int64_t>(chunk.rows.size());
  }
  *merged += came - static_cast<int64_t>(sums.rows().size());
  return sums;
}

RowSums SparseContributions::SumOfStep(int64_t* merged) const {
  RowSums total(width_);
  for (int32_t c = 0; c < contributions_.contributors(); ++c) {
    const MicroBatchShare share = contributions_.ShareOf(c);
    RowSums partial(width_);
    for (int32_t m = share.first; m < share.last; ++m) partial.Add(SumOfPush(m, merged));
    total.Add(partial);
  }
  return total;
}

}  // namespace muster
