// A decoder of bytes from outside, as the fuzzer and the corpus test drive it.
//
// Each *_fuzz.cc defines the targets of one decoder; targets.h lists all of them. A target checks
// with MUSTER_CHECK what must hold whatever comes, so that a fault ends the process in either
// driver. Targets are pure and thread-safe.
#ifndef MUSTER_TESTS_FUZZ_FUZZ_TARGET_H_
#define MUSTER_TESTS_FUZZ_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace muster {

enum class FuzzOutcome : uint8_t { kAccepted, kRefused };

struct FuzzTarget {
  const char* name;  // also its folder in tests/fuzz/corpus
  FuzzOutcome (*run)(absl::string_view bytes);
  // Valid inputs, made by the encoders where there are any: all are accepted.
  std::vector<std::string> (*seeds)();
  // Longer inputs find nothing new.
  size_t max_bytes;
  // Whether some inputs are refused at all.
  bool refuses = true;
};

// A refusal has one of these codes and a message that fits one line of a terminal: not empty, of
// bounded length, UTF-8, without control characters. Returns kRefused.
FuzzOutcome Refused(const absl::Status& status, std::initializer_list<absl::StatusCode> allowed);

}  // namespace muster

#endif  // MUSTER_TESTS_FUZZ_FUZZ_TARGET_H_
