#include "bench/collectives/child_group.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

namespace muster::bench {

ChildGroup::ChildGroup(std::string implementation, std::string transport,
                       std::vector<std::string> variants, const std::vector<std::string>& command)
    : implementation_(std::move(implementation)),
      transport_(std::move(transport)),
      variants_(std::move(variants)) {
  int in[2], out[2];
  if (pipe(in) != 0 || pipe(out) != 0) {
    std::perror("bench: pipe");
    std::exit(1);
  }
  std::fflush(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    // Earlier groups' pipes must not stay open here, or they would not see their input end.
    for (int fd = 3; fd < 256; ++fd) close(fd);
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    std::fprintf(stderr, "bench: cannot run %s\n", arguments[0]);
    std::_Exit(127);
  }
  close(in[0]);
  close(out[1]);
  to_ = fdopen(in[1], "w");
  from_ = fdopen(out[0], "r");
}

ChildGroup::~ChildGroup() {
  std::fclose(to_);
  std::fclose(from_);
  waitpid(pid_, nullptr, 0);
}

std::optional<double> ChildGroup::Measure(const Trial& trial, int64_t* wrong) {
  std::fprintf(to_, "%s\n", Format(trial).c_str());
  std::fflush(to_);
  double microseconds = 0;
  long long values = 0;
  if (std::fscanf(from_, "%lf %lld", &microseconds, &values) != 2) {
    std::fprintf(stderr, "bench: %s over %s died\n", implementation_.c_str(), transport_.c_str());
    std::exit(1);
  }
  if (microseconds < 0) return std::nullopt;
  *wrong += values;
  return microseconds;
}

}  // namespace muster::bench
