#include "client/launcher/child_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace muster {
namespace {

// Closes a descriptor at the end of its scope.
struct Descriptor {
  int value = -1;
  ~Descriptor() {
    if (value >= 0) close(value);
  }
  int Release() {
    const int released = value;
    value = -1;
    return released;
  }
};

absl::Status SystemError(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", strerror(errno)));
}

// Runs in the child of a process with threads, so only async-signal-safe calls are allowed.
[[noreturn]] void BecomeProgram(char* const* argv, pid_t parent, int input, int output,
                                int failure) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before the line above.
  if (getppid() != parent) _exit(127);
  setpgid(0, 0);
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  // Whatever a library opened without the flag. The failure pipe too ends with a successful exec.
  close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execv(argv[0], argv);
  const int error = errno;
  // If this fails as well, the exit code remains.
  if (write(failure, &error, sizeof error) < 0) _exit(126);
  _exit(127);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(
    const std::vector<std::string>& arguments) {
  int pipes[2][2];
  if (pipe2(pipes[0], O_CLOEXEC) != 0) return SystemError("pipe");
  Descriptor output_read{pipes[0][0]}, output_write{pipes[0][1]};
  if (pipe2(pipes[1], O_CLOEXEC) != 0) return SystemError("pipe");
  Descriptor failure_read{pipes[1][0]}, failure_write{pipes[1][1]};
  Descriptor input{open("/dev/null", O_RDONLY | O_CLOEXEC)};
  if (input.value < 0) return SystemError("/dev/null");
  if (fcntl(output_read.value, F_SETFL, O_NONBLOCK) != 0) return SystemError("fcntl");

  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return SystemError("fork");
  if (pid == 0) {
    BecomeProgram(argv.data(), parent, input.value, output_write.value, failure_write.value);
  }
  std::unique_ptr<ChildProcess> child(new ChildProcess(pid, output_read.Release()));
  close(failure_write.Release());
  int error = 0;
  ssize_t count;
  do {
    count = read(failure_read.value, &error, sizeof error);
  } while (count < 0 && errno == EINTR);
  if (count > 0) {
    errno = error;
    return SystemError(absl::StrCat("cannot run ", arguments[0]));
  }
  return child;
}

ChildProcess::~ChildProcess() {
  if (running()) {
    kill(pid_, SIGKILL);
    int status;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }
  if (output_ >= 0) close(output_);
}

void ChildProcess::Signal(int signal) {
  if (running()) kill(pid_, signal);
}

std::optional<int> ChildProcess::Reap() {
  int status;
  if (running() && waitpid(pid_, &status, WNOHANG) == pid_) wait_status_ = status;
  return wait_status_;
}

std::string ChildProcess::ReadOutput() {
  std::string all;
  char buffer[16'384];
  while (output_ >= 0) {
    const ssize_t count = read(output_, buffer, sizeof buffer);
    if (count > 0) {
      all.append(buffer, static_cast<size_t>(count));
      // One chatty child does not keep the others waiting.
      if (all.size() >= (1 << 20)) break;
    } else if (count == 0) {
      close(output_);
      output_ = -1;
    } else if (errno != EINTR) {
      break;
    }
  }
  return all;
}

std::string WaitStatusText(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    return absl::StrCat("was killed by signal ", signal, " (", strsignal(signal), ")");
  }
  return absl::StrCat("exited with code ", WEXITSTATUS(wait_status));
}

}  // namespace muster
