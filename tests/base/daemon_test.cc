#include "base/daemon.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/wait_until.h"

namespace muster {
namespace {

// 1 for each of the three descriptors that is /dev/null.
int NullDescriptors() {
  struct stat null = {};
  if (stat("/dev/null", &null) != 0) return -1;
  int count = 0;
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    struct stat info = {};
    count += fstat(descriptor, &info) == 0 && info.st_rdev == null.st_rdev && S_ISCHR(info.st_mode);
  }
  return count;
}

// The exit code of a child that runs `body`.
template <typename Body>
int InChild(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(DaemonTest, WhatLibrariesDoAtASignalIsTakenBack) {
  const auto handler_after_reset = [](int number, sighandler_t before) {
    return InChild([number, before] {
      signal(number, before);
      ResetSignals();
      const sighandler_t after = signal(number, SIG_DFL);
      return after == SIG_DFL ? 1 : after == SIG_IGN ? 2 : 3;
    });
  };
  const sighandler_t of_library = [](int) { _exit(1); };
  for (const int number : {SIGINT, SIGTERM, SIGSEGV, SIGABRT}) {
    EXPECT_EQ(handler_after_reset(number, of_library), 1) << number;
  }
  EXPECT_EQ(handler_after_reset(SIGINT, SIG_IGN), 2) << "as in a script's background";
  EXPECT_EQ(handler_after_reset(SIGXFSZ, SIG_DFL), 2);
}

TEST(DaemonTest, TheFirstProcessOfANamespaceEndsWhenAsked) {
  const int code = InChild([] {
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) return 1;
    int ready[2];
    if (pipe(ready) != 0) return 2;
    const pid_t first = fork();
    if (first == 0) {
      ResetSignals();
      if (getpid() != 1 || write(ready[1], "x", 1) != 1) _exit(3);
      while (true) pause();
    }
    char byte;
    if (read(ready[0], &byte, 1) != 1) return 4;
    kill(first, SIGTERM);
    int status = 0;
    const absl::Time deadline = absl::Now() + kTestPatience;
    while (waitpid(first, &status, WNOHANG) == 0) {
      if (absl::Now() < deadline) continue;
      kill(first, SIGKILL);
      return 5;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 6;
  });
  if (code == 1) GTEST_SKIP() << "no namespaces here";
  EXPECT_EQ(code, 128 + SIGTERM);
}

TEST(DaemonTest, ClosedStandardDescriptorsAreNotGivenAway) {
  const auto all_closed = [] {
    for (int descriptor = 0; descriptor <= 2; ++descriptor) close(descriptor);
    OpenStandardDescriptors();
    // The next file is beyond them.
    return NullDescriptors() == 3 && open("/dev/null", O_RDONLY | O_CLOEXEC) >= 3;
  };
  EXPECT_EQ(InChild(all_closed), 1);
}

TEST(DaemonTest, OpenStandardDescriptorsStay) {
  const auto one_closed = [] {
    int pipes[2];
    if (pipe(pipes) != 0) return 0;
    for (int descriptor = 0; descriptor <= 2; ++descriptor) dup2(pipes[1], descriptor);
    close(STDOUT_FILENO);
    OpenStandardDescriptors();
    return NullDescriptors();
  };
  EXPECT_EQ(InChild(one_closed), 1);
}

TEST(DaemonTest, AnAnswerWithoutAReaderIsAnError) {
  const auto closed = [] {
    close(STDOUT_FILENO);
    OpenStandardDescriptors();
    std::printf("answer\n");
    return EndOutput("test", 0);
  };
  EXPECT_EQ(InChild(closed), 1);
  const auto into = [](const char* path, int exit_code) {
    return InChild([=] {
      if (std::freopen(path, "w", stdout) == nullptr) return -1;
      std::cout << "answer\n";
      return EndOutput("test", exit_code);
    });
  };
  EXPECT_EQ(into("/dev/full", 0), 1);
  EXPECT_EQ(into("/dev/null", 0), 0);
  EXPECT_EQ(into("/dev/null", 2), 2);
}

TEST(DaemonTest, ANegativeNumberIsNoUnsignedOne) {
  EXPECT_EQ(NotNegative("-1"), "must not be negative, got -1");
  for (const char* fine : {"0", "18446744073709551615", "", "soon"}) {
    EXPECT_EQ(NotNegative(fine), "") << fine;
  }
}

TEST(DaemonTest, RaisesTheFileLimitToWhatIsAllowed) {
  const auto raised = [] {
    rlimit limit = {.rlim_cur = 64, .rlim_max = 128};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
    RaiseFileLimit();
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
    return limit.rlim_cur == 128 && limit.rlim_max == 128 ? 1 : 0;
  };
  EXPECT_EQ(InChild(raised), 1);
}

}  // namespace
}  // namespace muster
