#include "base/daemon.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/synchronization/mutex.h"

namespace muster {
namespace {

// Ends the signal thread; never sent to the process as a whole.
constexpr int kStopSignal = SIGUSR2;

sigset_t Signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, kStopSignal);
  return set;
}

}  // namespace

void OpenStandardDescriptors() {
  int descriptor;
  do {
    descriptor = open("/dev/null", O_RDWR | O_CLOEXEC);
  } while (descriptor >= 0 && descriptor <= STDERR_FILENO);
  if (descriptor >= 0) close(descriptor);
}

void RaiseFileLimit() {
  constexpr rlim_t kMost = rlim_t{1} << 20;
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t raised = std::min(limit.rlim_max, kMost);
  if (raised <= limit.rlim_cur) return;
  limit.rlim_cur = raised;
  // Where even this is refused the old limit holds, as before.
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

void TuneProcess() {
  for (int number : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV}) {
    signal(number, SIG_DFL);
  }
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 2147483647);
}

SignalThread::SignalThread(std::function<void(int)> first) : first_(std::move(first)) {
  signal(SIGPIPE, SIG_IGN);
  const sigset_t set = Signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this, set] {
    bool called = false;
    while (true) {
      int number = 0;
      if (sigwait(&set, &number) != 0) continue;
      if (number == kStopSignal) return;
      if (called) _exit(128 + number);
      called = true;
      first_(number);
    }
  });
}

SignalThread::~SignalThread() {
  pthread_kill(thread_.native_handle(), kStopSignal);
  thread_.join();
}

}  // namespace muster
