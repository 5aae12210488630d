// Reads a message in protobuf's text format. Thread-safe.
#ifndef MUSTER_CLIENT_JOB_TEXTPROTO_READER_H_
#define MUSTER_CLIENT_JOB_TEXTPROTO_READER_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/job/config_node.h"
#include "google/protobuf/message.h"

namespace muster {

// INVALID_ARGUMENT "LINE:COLUMN: FIELD: what". `positions` receives the position of each field that
// the text gives.
absl::Status ReadTextproto(absl::string_view text, google::protobuf::Message* message,
                           FieldPositions* positions);

}  // namespace muster

#endif  // MUSTER_CLIENT_JOB_TEXTPROTO_READER_H_
