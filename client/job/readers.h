// Front ends for job files: from text to a ConfigNode, within the limits of config_node.h. Pure and
// thread-safe. Errors are INVALID_ARGUMENT "LINE:COLUMN: what".
#ifndef MUSTER_CLIENT_JOB_READERS_H_
#define MUSTER_CLIENT_JOB_READERS_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/job/config_node.h"

namespace muster {

// One YAML 1.2 document. Anchors, aliases and explicit tags are refused: a job needs none of them.
absl::StatusOr<ConfigNode> ReadYaml(absl::string_view text);

// RFC 8259, no comments.
absl::StatusOr<ConfigNode> ReadJson(absl::string_view text);

}  // namespace muster

#endif  // MUSTER_CLIENT_JOB_READERS_H_
