#include "base/control/transport_names.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace muster {

std::optional<SyncTransport> ParseTransport(absl::string_view word) {
  std::string name = absl::AsciiStrToLower(word);
  std::replace(name.begin(), name.end(), '-', '_');
  if (name == "auto") return SyncTransport::kAutomatic;
  if (name == "tcp") return SyncTransport::kTcp;
  if (name == "shared_memory" || name == "shm") return SyncTransport::kSharedMemory;
  if (name == "libfabric" || name == "ofi") return SyncTransport::kLibfabric;
  if (name == "grpc") return SyncTransport::kGrpc;
  return std::nullopt;
}

std::string MeshNameOf(const std::string& word) {
  const std::optional<SyncTransport> transport = ParseTransport(word);
  if (!transport.has_value() || *transport == SyncTransport::kAutomatic) return word;
  return *transport == SyncTransport::kLibfabric ? "ofi" : Name(*transport);
}

}  // namespace muster
