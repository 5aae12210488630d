#include "server/parameter_server/rpc/work_pool.h"

#include <utility>

#include "base/check.h"

namespace muster {

WorkPool::WorkPool(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

WorkPool::~WorkPool() { MUSTER_CHECK(threads_.empty()) << "a pool must be stopped"; }

void WorkPool::Add(Work work) {
  {
    absl::MutexLock lock(&mutex_);
    if (!stopping_) {
      queue_.push_back(std::move(work));
      return;
    }
  }
  std::move(work)();
}

void WorkPool::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void WorkPool::Run() {
  while (true) {
    Work work;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &WorkPool::HasNews));
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    std::move(work)();
  }
}

}  // namespace muster
