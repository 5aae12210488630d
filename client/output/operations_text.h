// How the operations of a rank read, for people and for scripts. Pure and thread-safe.
#ifndef MUSTER_CLIENT_OUTPUT_OPERATIONS_TEXT_H_
#define MUSTER_CLIENT_OUTPUT_OPERATIONS_TEXT_H_

#include <string>
#include <vector>

#include "muster/v1/coordinator.pb.h"

namespace muster {

// A line about the rank, then a table of its newest `last` operations, oldest first.
std::string OperationTable(const v1::GetOperationsResponse& response, size_t last);

// Of the same one JSON object each, without newlines: rank, worker, epoch, and what the message has
// (message_json.h).
std::vector<std::string> OperationLines(const v1::GetOperationsResponse& response, size_t last);

}  // namespace muster

#endif  // MUSTER_CLIENT_OUTPUT_OPERATIONS_TEXT_H_
