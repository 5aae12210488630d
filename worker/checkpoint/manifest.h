// manifest.json: what a checkpoint is and which bytes belong to it. It is written last.
//
// The JSON object has the members of Manifest by name, plus "format" and "checksum": the SHA-256 of
// the object without that member, so that a flipped bit in the manifest itself is noticed.
// Fingerprints are strings of 16 hexadecimal digits.
#ifndef MUSTER_WORKER_CHECKPOINT_MANIFEST_H_
#define MUSTER_WORKER_CHECKPOINT_MANIFEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/checkpoint/training_state.h"

namespace muster {

enum class CheckpointFileKind : uint8_t { kParameters, kOptimizer, kIndex };

struct CheckpointFile {
  std::string name;  // without directory
  CheckpointFileKind kind = CheckpointFileKind::kParameters;
  int64_t bytes = 0;
  std::string sha256;
  bool operator==(const CheckpointFile&) const = default;
};

struct Manifest {
  static constexpr int kFormatVersion = 1;

  TrainingProgress progress;
  uint64_t layout_fingerprint = 0;
  std::string parameters_sha256;
  std::vector<CheckpointFile> files;
  bool operator==(const Manifest&) const = default;
};

// The text of manifest.json. INVALID_ARGUMENT if the job is not UTF-8.
absl::StatusOr<std::string> SerializeManifest(const Manifest& manifest);

// DATA_LOSS for text that is not a manifest or fails its checksum, FAILED_PRECONDITION for a format
// version this program does not know. `path` is for messages.
absl::StatusOr<Manifest> ParseManifest(absl::string_view text, const std::string& path);

}  // namespace muster

#endif  // MUSTER_WORKER_CHECKPOINT_MANIFEST_H_
