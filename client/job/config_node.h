// A parsed configuration file before it is given a meaning: what YAML and JSON have in common, with
// the position of each part. Plain values.
#ifndef MUSTER_CLIENT_JOB_CONFIG_NODE_H_
#define MUSTER_CLIENT_JOB_CONFIG_NODE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace muster {

// Lines and columns count from 1; 0: unknown.
struct Position {
  int line = 0;
  int column = 0;
  auto operator<=>(const Position&) const = default;
};

// Where each field of a message stands in its file; keys are paths as in error messages, for
// example "training.learning_rate.peak" or "model.mlp.hidden[1]".
using FieldPositions = std::map<std::string, Position>;

struct ConfigEntry;

struct ConfigNode {
  enum class Kind : uint8_t { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  Position position;
  std::string scalar;                // kScalar
  bool quoted = false;               // kScalar: written in quotes, so it is text and no number
  std::vector<ConfigNode> items;     // kList
  std::vector<ConfigEntry> entries;  // kMap, in order of the file; keys may repeat
};

struct ConfigEntry {
  std::string key;
  Position position;
  ConfigNode value;
};

// More than any job needs; keeps hostile files from costing time or stack.
inline constexpr int kMaxConfigDepth = 32;
inline constexpr int kMaxConfigNodes = 10'000;

// INVALID_ARGUMENT "LINE:COLUMN: FIELD: text"; the caller puts the file in front. `field` may be
// empty.
inline absl::Status PositionedError(Position position, absl::string_view field,
                                    absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat(position.line, ":", position.column, ": ", field,
                                                 field.empty() ? "" : ": ", text));
}

}  // namespace muster

#endif  // MUSTER_CLIENT_JOB_CONFIG_NODE_H_
