#include "base/daemon.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
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

void EndAtOnce(int signal) { _exit(128 + signal); }

}  // namespace

std::string NotEmpty(const std::string& value) { return value.empty() ? "must not be empty" : ""; }

std::string NotNegative(const std::string& value) {
  return !value.empty() && value.front() == '-' ? "must not be negative, got " + value : "";
}

void OpenStandardDescriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) >= 0) continue;
    // Those before it are open, so that it is the one to be given out.
    const int mode = descriptor == STDOUT_FILENO ? O_RDONLY : O_RDWR;
    if (open("/dev/null", mode | O_CLOEXEC) != descriptor) return;
  }
}

int EndOutput(absl::string_view program, int exit_code) {
  errno = 0;
  // C++'s stream keeps nothing back: it writes through C's.
  const bool flushed = std::fflush(stdout) == 0;
  const int error = errno;  // 0 if an earlier write has failed
  if (flushed && std::ferror(stdout) == 0) return exit_code;
  std::fprintf(stderr, "%s: cannot write the output%s%s\n", std::string(program).c_str(),
               error == 0 ? "" : ": ", error == 0 ? "" : std::strerror(error));
  return 1;
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

void ResetSignals() {
  // From the first process of a namespace the kernel keeps what it has no handler for.
  const bool is_first = getpid() == 1;
  for (int number : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction current = {};
    if (sigaction(number, nullptr, &current) != 0 || current.sa_handler == SIG_IGN) continue;
    const bool asks_to_end = number == SIGINT || number == SIGTERM || number == SIGHUP;
    signal(number, is_first && asks_to_end ? EndAtOnce : SIG_DFL);
  }
  signal(SIGXFSZ, SIG_IGN);
}

void TuneProcess() {
  ResetSignals();
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 2147483647);
}

void KeepFreedMemory() {
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_TOP_PAD, 64 << 20);
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
