// What the code relies on of its mutex. Under the thread sanitizer this tests the one that stands
// for Abseil's, everywhere else Abseil's own: both have to keep the contract.
#include "base/mutex.h"

#include <memory>
#include <thread>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

struct Gate {
  Mutex mutex;
  int arrived ABSL_GUARDED_BY(mutex) = 0;

  bool BothArrived() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return arrived == 2; }
  void Arrive() {
    MutexLock lock(&mutex);
    ++arrived;
  }
  void AwaitBoth() {
    MutexLock lock(&mutex);
    mutex.Await(Condition(this, &Gate::BothArrived));
  }
};

// Whoever finds its condition true may destroy the mutex at once: Unlock() of the thread that made
// it true must not touch the mutex any more. The first arrival wakes the waiter, so that it
// competes with the last one's Unlock().
TEST(MutexTest, MayBeDestroyedAsSoonAsTheConditionHolds) {
  for (int round = 0; round < 500; ++round) {
    auto gate = std::make_unique<Gate>();
    std::thread first(&Gate::Arrive, gate.get());
    std::thread last(&Gate::Arrive, gate.get());
    gate->AwaitBoth();
    gate.reset();
    first.join();
    last.join();
  }
}

TEST(MutexTest, AwaitWithTimeoutSaysWhetherTheConditionHolds) {
  Mutex mutex;
  bool never = false;
  MutexLock lock(&mutex);
  EXPECT_FALSE(mutex.AwaitWithTimeout(Condition(&never), absl::Milliseconds(1)));
  never = true;
  EXPECT_TRUE(mutex.AwaitWithTimeout(Condition(&never), absl::ZeroDuration()));
}

}  // namespace
}  // namespace muster
