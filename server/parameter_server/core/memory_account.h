// What a server's tables may take of memory in all, and what they have taken.
//
// Every long-lived array of a table is taken from its server's account before it is allocated, so
// that a budget holds and what is in use is known to the byte. Tables that are locked by different
// mutexes need an account that may be called from several threads (a shell's); the one below is for
// one thread.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_CORE_MEMORY_ACCOUNT_H_
#define MUSTER_SERVER_PARAMETER_SERVER_CORE_MEMORY_ACCOUNT_H_

#include <cstdint>
#include <utility>

namespace muster {

class MemoryAccount {
 public:
  virtual ~MemoryAccount() = default;
  // Takes `bytes`, if the budget has so many left.
  virtual bool TryTake(int64_t bytes) = 0;
  // Takes them even beyond the budget: for what must not fail, and is bounded elsewhere.
  virtual void Take(int64_t bytes) = 0;
  // Gives back. Requires: so many are taken.
  virtual void Return(int64_t bytes) = 0;
  virtual int64_t taken_bytes() const = 0;
  virtual int64_t budget_bytes() const = 0;
};

// For one thread.
class SimpleMemoryAccount final : public MemoryAccount {
 public:
  explicit SimpleMemoryAccount(int64_t budget_bytes) : budget_(budget_bytes) {}

  bool TryTake(int64_t bytes) override {
    if (bytes > budget_ - taken_) return false;
    taken_ += bytes;
    return true;
  }
  void Take(int64_t bytes) override { taken_ += bytes; }
  void Return(int64_t bytes) override;
  int64_t taken_bytes() const override { return taken_; }
  int64_t budget_bytes() const override { return budget_; }

 private:
  const int64_t budget_;
  int64_t taken_ = 0;
};

// Bytes taken for as long as the object lives.
class TakenBytes {
 public:
  TakenBytes() = default;
  // Beyond the budget if need be.
  TakenBytes(MemoryAccount& account, int64_t bytes) : account_(&account), bytes_(bytes) {
    account.Take(bytes);
  }
  TakenBytes(TakenBytes&& other) noexcept
      : account_(other.account_), bytes_(std::exchange(other.bytes_, 0)) {}
  TakenBytes& operator=(TakenBytes&& other) noexcept {
    std::swap(account_, other.account_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~TakenBytes() {
    if (bytes_ > 0) account_->Return(bytes_);
  }
  int64_t bytes() const { return bytes_; }

 private:
  MemoryAccount* account_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_CORE_MEMORY_ACCOUNT_H_
