#include "server/rpc/submit_queue.h"

#include <utility>

namespace muster {

SubmitQueue::SubmitQueue(size_t limit) : limit_(limit), thread_([this] { Run(); }) {}

SubmitQueue::~SubmitQueue() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  thread_.join();
}

bool SubmitQueue::Add(std::function<void()> task) {
  absl::MutexLock lock(&mutex_);
  if (ending_ || tasks_.size() >= limit_) return false;
  tasks_.push_back(std::move(task));
  return true;
}

void SubmitQueue::Run() {
  while (true) {
    std::function<void()> task;
    {
      absl::MutexLock lock(&mutex_);
      const auto called = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return ending_ || !tasks_.empty();
      };
      mutex_.Await(absl::Condition(&called));
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace muster
