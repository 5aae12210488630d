// Finds out where two runs part: after which step, in which tensor.
//
// Both are run again with a checkpoint after every step. A worker that is still writing one takes
// no other, so there may be gaps; further reruns halve them, each with checkpoints at another
// distance, which puts the first near the middle. Not thread-safe.
#ifndef MUSTER_CLIENT_VERIFY_LOCATE_H_
#define MUSTER_CLIENT_VERIFY_LOCATE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/file.h"

namespace muster {

// The first tensor in which two checkpoints differ, as `muster-checkpoint diff --json` says.
struct ParsedDifference {
  std::string tensor;
  std::string of;    // "parameters" or "optimizer"
  std::string what;  // "values", "form" or "missing"
  // With "values": the first differing element.
  int64_t element = 0;
  std::vector<int64_t> index;
  std::array<std::string, 2> bits;    // "0x3f800000"
  std::array<std::string, 2> values;  // "1.5", "not finite"
  int64_t differing = 0;
  int64_t elements = 0;
  int64_t differing_tensors = 0;
  int64_t tensors = 0;
};

// Absent: the checkpoints are equal. INTERNAL if this is not such an object.
absl::StatusOr<std::optional<ParsedDifference>> ParseDifference(absl::string_view json);

struct Rerun {
  std::string checkpoints;  // their directory
  std::string parameters_sha256;
};

struct FirstDifference {
  int64_t step = 0;        // the first that is known to differ
  int64_t last_equal = 0;  // the last before it that is known to be equal; 0: the initial state
  ParsedDifference difference;
  std::array<std::string, 2> paths;  // of the checkpoints
};

struct Location {
  std::optional<FirstDifference> first;
  std::string problem;  // why there is none
};

struct LocateOperations {
  // Runs the reference, or the run that differs, with a checkpoint after every so many steps.
  std::function<absl::StatusOr<Rerun>(int64_t every)> reference;
  std::function<absl::StatusOr<Rerun>(int64_t every)> run;
  std::function<absl::StatusOr<std::optional<ParsedDifference>>(const std::string& first,
                                                                const std::string& second)>
      compare;
};

Location LocateDifference(FileSystem& files, const LocateOperations& operations);

}  // namespace muster

#endif  // MUSTER_CLIENT_VERIFY_LOCATE_H_
