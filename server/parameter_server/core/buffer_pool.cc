#include "server/parameter_server/core/buffer_pool.h"

#include <algorithm>
#include <bit>
#include <new>

#include "base/check.h"

namespace muster {
namespace {

constexpr int64_t kLeast = 16;  // floats: a cache line

// The least of 4, 5, 6, 7 times a power of two that is at least `count`.
int64_t CapacityFor(int64_t count) {
  if (count <= kLeast) return kLeast;
  const auto width = static_cast<int>(std::bit_width(static_cast<uint64_t>(count - 1)));
  const int64_t step = int64_t{1} << (width - 3);
  return (count + step - 1) / step * step;
}

int64_t BytesOf(int64_t capacity) { return capacity * static_cast<int64_t>(sizeof(float)); }

float* Allocate(int64_t capacity) {
  return static_cast<float*>(::operator new (static_cast<size_t>(BytesOf(capacity)),
                                             std::align_val_t{BufferPool::kAlignmentBytes}));
}

void Free(float* data) { ::operator delete (data, std::align_val_t{BufferPool::kAlignmentBytes}); }

}  // namespace

PooledFloats& PooledFloats::operator=(PooledFloats&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  pool_ = std::exchange(other.pool_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  count_ = std::exchange(other.count_, 0);
  capacity_ = std::exchange(other.capacity_, 0);
  return *this;
}

void PooledFloats::Reset() {
  if (data_ == nullptr) return;
  pool_->Return(std::exchange(data_, nullptr), std::exchange(capacity_, 0));
  pool_ = nullptr;
  count_ = 0;
}

BufferPool::~BufferPool() {
  MUSTER_CHECK_EQ(used_bytes_, 0) << "arrays outlive their pool";
  kept_bytes_ = 0;
  DropIdle(0);
  account_.Return(reserved_bytes_);
}

int64_t BufferPool::BytesFor(int64_t count) { return BytesOf(CapacityFor(count)); }

bool BufferPool::TryReserve(int64_t bytes, bool keep) {
  if (!account_.TryTake(bytes)) {
    DropIdle(0);
    if (!account_.TryTake(bytes)) return false;
  }
  reserved_bytes_ += bytes;
  if (keep) kept_bytes_ += bytes;
  return true;
}

PooledFloats BufferPool::Take(int64_t count) { return Make(count, /*must=*/true); }
PooledFloats BufferPool::TryTake(int64_t count) { return Make(count, /*must=*/false); }

PooledFloats BufferPool::Make(int64_t count, bool must) {
  MUSTER_CHECK(count > 0) << count;
  const int64_t capacity = CapacityFor(count);
  const int64_t bytes = BytesOf(capacity);
  PooledFloats array;
  if (const auto idle = idle_.find(capacity); idle != idle_.end()) {
    array.data_ = idle->second.back();
    idle->second.pop_back();
    if (idle->second.empty()) idle_.erase(idle);
    idle_bytes_ -= bytes;
  } else {
    const int64_t lacking = bytes - std::min(bytes, reserved_bytes_);
    if (lacking > 0 && !account_.TryTake(lacking)) {
      DropIdle(0);
      if (!account_.TryTake(lacking)) {
        if (!must) return array;
        account_.Take(lacking);
      }
    }
    reserved_bytes_ -= bytes - lacking;
    array.data_ = Allocate(capacity);
  }
  used_bytes_ += bytes;
  array.pool_ = this;
  array.count_ = count;
  array.capacity_ = capacity;
  return array;
}

void BufferPool::Return(float* data, int64_t capacity) {
  const int64_t bytes = BytesOf(capacity);
  used_bytes_ -= bytes;
  const bool over = account_.taken_bytes() > account_.budget_bytes();
  if (over || bytes > max_idle_bytes_) {
    Free(data);
    ReturnToAccount(bytes);
    return;
  }
  DropIdle(max_idle_bytes_ - bytes);
  idle_[capacity].push_back(data);
  idle_bytes_ += bytes;
}

void BufferPool::ReturnToAccount(int64_t bytes) {
  const int64_t kept = std::clamp<int64_t>(kept_bytes_ - reserved_bytes_, 0, bytes);
  reserved_bytes_ += kept;
  account_.Return(bytes - kept);
}

void BufferPool::DropIdle(int64_t until_bytes) {
  // The largest first: they are the least likely to be asked for again at once.
  while (idle_bytes_ > until_bytes) {
    const auto largest = std::prev(idle_.end());
    Free(largest->second.back());
    largest->second.pop_back();
    idle_bytes_ -= BytesOf(largest->first);
    ReturnToAccount(BytesOf(largest->first));
    if (largest->second.empty()) idle_.erase(largest);
  }
}

}  // namespace muster
