// Arrays of floats that are used again, since the first touch of fresh memory costs more than
// adding to it, and that are taken from a MemoryAccount.
//
// Sizes are rounded up to four classes for each power of two, so that arrays of about one size
// serve each other; what is rounded up is accounted, too. Given back, an array is kept up to a
// limit, and given up where the account has no room for others. Contents are anything.
//
// Thread-compatible; a pool outlives its arrays.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_CORE_BUFFER_POOL_H_
#define MUSTER_SERVER_PARAMETER_SERVER_CORE_BUFFER_POOL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "server/parameter_server/core/memory_account.h"

namespace muster {

class BufferPool;

// An array of a pool, which gets it back. Aligned to 64 bytes.
class PooledFloats {
 public:
  PooledFloats() = default;
  PooledFloats(PooledFloats&& other) noexcept { *this = std::move(other); }
  PooledFloats& operator=(PooledFloats&& other) noexcept;
  ~PooledFloats() { Reset(); }

  explicit operator bool() const { return data_ != nullptr; }
  absl::Span<float> span() { return {data_, static_cast<size_t>(count_)}; }
  absl::Span<const float> span() const { return {data_, static_cast<size_t>(count_)}; }
  float* data() { return data_; }
  const float* data() const { return data_; }
  int64_t count() const { return count_; }
  // What it takes of the account.
  int64_t bytes() const { return capacity_ * static_cast<int64_t>(sizeof(float)); }
  void Reset();

 private:
  friend class BufferPool;
  BufferPool* pool_ = nullptr;
  float* data_ = nullptr;
  int64_t count_ = 0;
  int64_t capacity_ = 0;
};

class BufferPool {
 public:
  static constexpr int64_t kAlignmentBytes = 64;

  // `account` must outlive the pool.
  BufferPool(MemoryAccount& account, int64_t max_idle_bytes)
      : account_(account), max_idle_bytes_(max_idle_bytes) {}
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Takes `bytes` from the account for arrays to come; false if the budget has no room. With `keep`
  // they are reserved again once such arrays are gone.
  bool TryReserve(int64_t bytes, bool keep = false);
  // Beyond the budget if need be. Requires: count > 0.
  PooledFloats Take(int64_t count);
  // Empty if the budget has no room.
  PooledFloats TryTake(int64_t count);

  // What an array of `count` takes of the account.
  static int64_t BytesFor(int64_t count);

  int64_t idle_bytes() const { return idle_bytes_; }
  int64_t reserved_bytes() const { return reserved_bytes_; }
  int64_t used_bytes() const { return used_bytes_; }

 private:
  friend class PooledFloats;
  PooledFloats Make(int64_t count, bool must);
  void Return(float* data, int64_t capacity);
  void DropIdle(int64_t until_bytes);
  void ReturnToAccount(int64_t bytes);

  MemoryAccount& account_;
  const int64_t max_idle_bytes_;
  int64_t reserved_bytes_ = 0;  // taken, and of no array
  int64_t kept_bytes_ = 0;      // how many of them to come back to
  int64_t idle_bytes_ = 0;
  int64_t used_bytes_ = 0;
  std::map<int64_t, std::vector<float*>> idle_;  // by capacity
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_CORE_BUFFER_POOL_H_
