// Builds a ConfigNode from a stream of events, within the limits of config_node.h. Not thread-safe.
//
// After the first error it ignores all events.
#ifndef MUSTER_CLIENT_JOB_CONFIG_BUILDER_H_
#define MUSTER_CLIENT_JOB_CONFIG_BUILDER_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/job/config_node.h"

namespace muster {

class ConfigBuilder {
 public:
  // A scalar, in a map's key position the key.
  void Scalar(Position position, std::string text, bool quoted);
  void Null(Position position);
  void BeginList(Position position);
  void BeginMap(Position position);
  void End();

  void Fail(Position position, absl::string_view text);
  bool failed() const { return !status_.ok(); }

  // The whole tree. Requires: all that was begun has ended, unless it failed.
  absl::StatusOr<ConfigNode> Finish() &&;

 private:
  struct Open {
    ConfigNode* node;  // stable: a parent does not grow while a child is open
    bool has_key = false;
  };

  bool AtKey() const {
    return !open_.empty() && open_.back().node->kind == ConfigNode::Kind::kMap &&
           !open_.back().has_key;
  }
  // The place for the next value, or null after a failure.
  ConfigNode* Place(Position position);
  void Begin(Position position, ConfigNode::Kind kind);

  ConfigNode root_;
  bool has_root_ = false;
  std::vector<Open> open_;
  int count_ = 0;
  absl::Status status_;
};

}  // namespace muster

#endif  // MUSTER_CLIENT_JOB_CONFIG_BUILDER_H_
