#include "bench/scaling/host_lab.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace muster::bench {
namespace {

absl::Status SystemError(const std::string& what) {
  const std::string text = absl::StrCat(what, ": ", std::strerror(errno));
  return errno == EPERM || errno == EACCES ? absl::PermissionDeniedError(text)
                                           : absl::InternalError(text);
}

std::string NamespaceOf(pid_t pid) { return absl::StrCat("/proc/", pid, "/ns/net"); }

absl::Status EnterNamespace(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return SystemError("open " + path);
  const int result = setns(fd, CLONE_NEWNET);
  const absl::Status status = result == 0 ? absl::OkStatus() : SystemError("setns " + path);
  close(fd);
  return status;
}

// Runs a program, words separated by blanks, in the namespace of `pid` (0: the own one).
absl::Status Run(const std::string& line, pid_t pid = 0) {
  std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
  int output[2];
  if (pipe2(output, O_CLOEXEC) != 0) return SystemError("pipe");
  const pid_t child = fork();
  if (child < 0) return SystemError("fork");
  if (child == 0) {
    if (pid > 0 && !EnterNamespace(NamespaceOf(pid)).ok()) _exit(126);
    dup2(output[1], STDOUT_FILENO);
    dup2(output[1], STDERR_FILENO);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  close(output[1]);
  std::string said;
  std::array<char, 512> piece;
  for (ssize_t n; (n = read(output[0], piece.data(), piece.size())) > 0;) {
    said.append(piece.data(), static_cast<size_t>(n));
  }
  close(output[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
    return absl::NotFoundError(absl::StrCat(words[0], " is not installed (packages iproute2)"));
  }
  return absl::InternalError(
      absl::StrCat("\"", line, "\" failed: ", absl::StripAsciiWhitespace(said)));
}

absl::Status WriteText(const char* path, const std::string& text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return SystemError(absl::StrCat("open ", path));
  const bool wrote = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const absl::Status status = wrote ? absl::OkStatus() : SystemError(absl::StrCat("write ", path));
  close(fd);
  return status;
}

// As root of a user namespace where the process is not root itself.
absl::Status LeaveNetwork() {
  const uid_t user = geteuid();
  const gid_t group = getegid();
  if (unshare(user == 0 ? CLONE_NEWNET : CLONE_NEWUSER | CLONE_NEWNET) != 0) {
    return SystemError("making a network namespace");
  }
  if (user == 0) return absl::OkStatus();
  MUSTER_RETURN_IF_ERROR(WriteText("/proc/self/setgroups", "deny"));
  MUSTER_RETURN_IF_ERROR(WriteText("/proc/self/uid_map", absl::StrCat("0 ", user, " 1")));
  return WriteText("/proc/self/gid_map", absl::StrCat("0 ", group, " 1"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<HostLab>> HostLab::Create(const HostLabOptions& options) {
  auto lab = std::unique_ptr<HostLab>(new HostLab(options));
  MUSTER_RETURN_IF_ERROR(lab->Build());
  return lab;
}

HostLab::~HostLab() {
  for (pid_t holder : holders_) {
    kill(holder, SIGKILL);
    waitpid(holder, nullptr, 0);
  }
}

std::string HostLab::Address(int host) const { return absl::StrCat("10.0.0.", host + 1); }

absl::Status HostLab::Enter(int host) const {
  return EnterNamespace(NamespaceOf(holders_[static_cast<size_t>(host)]));
}

absl::Status HostLab::Build() {
  MUSTER_RETURN_IF_ERROR(LeaveNetwork());
  MUSTER_RETURN_IF_ERROR(Run("ip link add switch type bridge"));
  MUSTER_RETURN_IF_ERROR(Run(absl::StrCat("ip link set switch mtu ", options_.mtu, " up")));
  for (int host = 0; host < options_.hosts; ++host) MUSTER_RETURN_IF_ERROR(AddHost(host));
  return absl::OkStatus();
}

absl::Status HostLab::AddHost(int host) {
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) return SystemError("pipe");
  const pid_t holder = fork();
  if (holder < 0) return SystemError("fork");
  if (holder == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const char made = unshare(CLONE_NEWNET) == 0 ? 'y' : 'n';
    if (write(ready[1], &made, 1) != 1) _exit(1);
    while (true) pause();
  }
  holders_.push_back(holder);
  close(ready[1]);
  char made = 'n';
  const bool told = read(ready[0], &made, 1) == 1;
  close(ready[0]);
  if (!told || made != 'y') return absl::InternalError("a host's network namespace was not made");

  const std::string port = absl::StrCat("port", host);
  const std::string limit =
      absl::StrCat(" root tbf rate ", options_.rate_mbit, "mbit burst 128kb limit 16mb");
  const std::vector<std::pair<std::string, pid_t>> steps = {
      {absl::StrCat("ip link add ", port, " type veth peer name wire netns ", holder), 0},
      {absl::StrCat("ip link set ", port, " mtu ", options_.mtu, " master switch up"), 0},
      {absl::StrCat("tc qdisc add dev ", port, limit), 0},
      {absl::StrCat("ip addr add ", Address(host), "/24 dev wire"), holder},
      {absl::StrCat("ip link set wire mtu ", options_.mtu, " up"), holder},
      // By the route, since namespaces may not choose every algorithm as their default.
      {absl::StrCat("ip route replace 10.0.0.0/24 dev wire src ", Address(host), " congctl ",
                    options_.congestion_control),
       holder},
      {"ip link set lo up", holder},
      {absl::StrCat("tc qdisc add dev wire", limit), holder},
  };
  for (const auto& [line, where] : steps) MUSTER_RETURN_IF_ERROR(Run(line, where));
  return absl::OkStatus();
}

}  // namespace muster::bench
