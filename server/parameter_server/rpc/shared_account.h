// A memory account for tables that run on several threads, and for what is answered from them.
// Thread-safe.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_RPC_SHARED_ACCOUNT_H_
#define MUSTER_SERVER_PARAMETER_SERVER_RPC_SHARED_ACCOUNT_H_

#include <atomic>
#include <cstdint>

#include "server/parameter_server/core/memory_account.h"

namespace muster {

class SharedAccount final : public MemoryAccount {
 public:
  explicit SharedAccount(int64_t budget_bytes) : budget_(budget_bytes) {}

  bool TryTake(int64_t bytes) override {
    int64_t taken = taken_.load(std::memory_order_relaxed);
    do {
      if (bytes > budget_ - taken) return false;
    } while (!taken_.compare_exchange_weak(taken, taken + bytes, std::memory_order_relaxed));
    return true;
  }
  // Also if the budget has no room, but nothing else is taken: so what is larger than the budget
  // has its turn, alone.
  bool TryTakeOrBeAlone(int64_t bytes) {
    int64_t taken = taken_.load(std::memory_order_relaxed);
    do {
      if (bytes > budget_ - taken && taken > 0) return false;
    } while (!taken_.compare_exchange_weak(taken, taken + bytes, std::memory_order_relaxed));
    return true;
  }
  void Take(int64_t bytes) override { taken_.fetch_add(bytes, std::memory_order_relaxed); }
  void Return(int64_t bytes) override { taken_.fetch_sub(bytes, std::memory_order_relaxed); }
  int64_t taken_bytes() const override { return taken_.load(std::memory_order_relaxed); }
  int64_t budget_bytes() const override { return budget_; }

 private:
  const int64_t budget_;
  std::atomic<int64_t> taken_ = 0;
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_RPC_SHARED_ACCOUNT_H_
