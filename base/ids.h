// Names for things the whole fleet agrees on (docs/design.md, Words).
#ifndef MUSTER_BASE_IDS_H_
#define MUSTER_BASE_IDS_H_

#include <compare>
#include <cstdint>
#include <string>

#include "absl/strings/str_format.h"

namespace muster {

// Number of a view or proposal; only rises. 0 means none.
using Epoch = uint64_t;
// Number of the coordinator's start; only rises.
using Term = uint64_t;
// Steps count from 1; "after step k" is the state in which k updates have been applied; 0 is the
// initial state.
using Step = int64_t;
// 0 .. world size - 1.
using Rank = int32_t;
using JobId = std::string;
using WorkerName = std::string;

// A process's unique id, drawn anew at each start and at each join. 0 means none.
struct Incarnation {
  uint64_t value = 0;
  auto operator<=>(const Incarnation&) const = default;
  explicit operator bool() const { return value != 0; }
  std::string ToString() const { return absl::StrFormat("%016x", value); }
  template <typename H>
  friend H AbslHashValue(H h, Incarnation id) {
    return H::combine(std::move(h), id.value);
  }
};

}  // namespace muster

#endif  // MUSTER_BASE_IDS_H_
