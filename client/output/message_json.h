// A protobuf message as JSON for scripts. Pure and thread-safe.
//
// Unlike protobuf's own mapping: 64-bit integers are numbers, enum values are lower-case names
// without the type's name ("running"), fixed64 ids are 16 hexadecimal digits, every field that has
// no presence is there even at its default (one that has it only if it is set), and numbers that
// are not finite are null. Field names are those of the .proto file; timestamps are RFC 3339.
#ifndef MUSTER_CLIENT_OUTPUT_MESSAGE_JSON_H_
#define MUSTER_CLIENT_OUTPUT_MESSAGE_JSON_H_

#include <string>

#include "google/protobuf/message.h"

namespace muster {

// On one line, without a newline at its end.
std::string MessageToJson(const google::protobuf::Message& message);

}  // namespace muster

#endif  // MUSTER_CLIENT_OUTPUT_MESSAGE_JSON_H_
