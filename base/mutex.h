// The mutex of code that the thread sanitizer is to check: Abseil's, except under that sanitizer.
//
// The packaged Abseil is built without the sanitizer, which therefore does not see its mutexes and
// reports a race on all they guard. Under it these names stand for a mutex with the same contract,
// as far as it is used, over a pthread mutex, which the sanitizer understands.
#ifndef MUSTER_BASE_MUTEX_H_
#define MUSTER_BASE_MUTEX_H_

#include "absl/base/thread_annotations.h"

#ifndef __SANITIZE_THREAD__

#include "absl/synchronization/mutex.h"

namespace muster {
using absl::Condition;
using absl::Mutex;
using absl::MutexLock;
}  // namespace muster

#else

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace muster {

class Condition {
 public:
  explicit Condition(const bool* value) : holds_([value] { return *value; }) {}
  template <typename T>
  Condition(const T* object, bool (T::*method)() const)
      : holds_([object, method] { return (object->*method)(); }) {}
  template <typename F>
  explicit Condition(const F* function) : holds_([function] { return (*function)(); }) {}
  bool Holds() const { return holds_(); }

 private:
  std::function<bool()> holds_;
};

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mutex_.try_lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    // Before the unlock: who then finds its condition true may destroy the mutex at once.
    if (waiters_ > 0) changed_.notify_all();
    mutex_.unlock();
  }
  void Await(const Condition& condition) { AwaitWithDeadline(condition, absl::InfiniteFuture()); }
  bool AwaitWithTimeout(const Condition& condition, absl::Duration timeout) {
    return AwaitWithDeadline(condition, absl::Now() + timeout);
  }
  bool AwaitWithDeadline(const Condition& condition, absl::Time deadline) {
    std::unique_lock<std::mutex> lock(mutex_, std::adopt_lock);
    ++waiters_;
    changed_.notify_all();  // Waiting gives up the lock, so others' conditions count again.
    while (!condition.Holds() && absl::Now() < deadline) {
      changed_.wait_until(lock,
                          absl::ToChronoTime(std::min(deadline, absl::Now() + absl::Seconds(1))));
    }
    --waiters_;
    lock.release();
    return condition.Holds();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiters_ = 0;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

}  // namespace muster

#endif  // __SANITIZE_THREAD__

#endif  // MUSTER_BASE_MUTEX_H_
