// A rank group (rank_group.h) in child processes, from the side of the bench that commands it.
#ifndef MUSTER_BENCH_COLLECTIVES_CHILD_GROUP_H_
#define MUSTER_BENCH_COLLECTIVES_CHILD_GROUP_H_

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "bench/collectives/trial.h"

namespace muster::bench {

class ChildGroup {
 public:
  // Runs `command`, which serves a rank group. The variants are what it is asked to measure.
  ChildGroup(std::string implementation, std::string transport, std::vector<std::string> variants,
             const std::vector<std::string>& command);
  // Ends the group and waits for it.
  ~ChildGroup();
  ChildGroup(const ChildGroup&) = delete;
  ChildGroup& operator=(const ChildGroup&) = delete;

  const std::string& implementation() const { return implementation_; }
  const std::string& transport() const { return transport_; }
  const std::vector<std::string>& variants() const { return variants_; }

  // Microseconds per collective; adds wrong values to *wrong. Empty for what the implementation
  // does not have. A group that has died ends this process, with a word.
  std::optional<double> Measure(const Trial& trial, int64_t* wrong);

 private:
  const std::string implementation_;
  const std::string transport_;
  const std::vector<std::string> variants_;
  pid_t pid_ = -1;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
};

}  // namespace muster::bench

#endif  // MUSTER_BENCH_COLLECTIVES_CHILD_GROUP_H_
