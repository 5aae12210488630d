// Fills a protobuf message from a ConfigNode, field by field, through reflection. Thread-safe.
//
// Fields go by the names in the .proto file. Wrong fields, types, ranges, repeated fields and two
// members of one oneof are errors: INVALID_ARGUMENT "LINE:COLUMN: FIELD: what". Enum values go by
// their names in any case. NaN and infinity parse: whether a field may be one is for its
// validation. Messages, lists and the scalars int32, int64, uint64, float, double, bool, string and
// enum are supported; another type in the message is a check failure.
#ifndef MUSTER_CLIENT_JOB_MESSAGE_MAPPER_H_
#define MUSTER_CLIENT_JOB_MESSAGE_MAPPER_H_

#include "absl/status/status.h"
#include "client/job/config_node.h"
#include "google/protobuf/message.h"

namespace muster {

struct MappingOptions {
  // As protobuf's JSON mapping has it: lowerCamelCase names too, 64-bit integers, NaN and Infinity
  // in quotes, and text only in quotes. (What has no quotes in YAML is whatever its field asks
  // for.)
  bool protobuf_json = false;
};

// `positions` receives the position of each field that the file gives.
absl::Status FillMessage(const ConfigNode& root, const MappingOptions& options,
                         google::protobuf::Message* message, FieldPositions* positions);

}  // namespace muster

#endif  // MUSTER_CLIENT_JOB_MESSAGE_MAPPER_H_
