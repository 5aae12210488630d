// How people spell transports. Job files say shared_memory and libfabric, and so does what programs
// show of their flags; what a mesh calls itself (shm, ofi) and hyphens are understood as well, in
// capitals or not, so that any word that one command shows can be given to another. Pure and
// thread-safe.
#ifndef MUSTER_BASE_CONTROL_TRANSPORT_NAMES_H_
#define MUSTER_BASE_CONTROL_TRANSPORT_NAMES_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "base/control/strategy.h"

namespace muster {

// auto; tcp; shared_memory, shared-memory or shm; libfabric or ofi; grpc. Nothing for other words.
std::optional<SyncTransport> ParseTransport(absl::string_view word);

// What the mesh of the transport that `word` stands for calls itself: "tcp", "shm", "ofi", "grpc".
// `word` as it is if it stands for none, such as "inproc".
std::string MeshNameOf(const std::string& word);

}  // namespace muster

#endif  // MUSTER_BASE_CONTROL_TRANSPORT_NAMES_H_
