// manifest.json: what a checkpoint is and which bytes belong to it. It is written last. Where
// several workers write, each leaves the same about its part in a file of its own, of which the
// manifest is made.
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
#include "absl/types/span.h"
#include "worker/checkpoint/training_state.h"

namespace muster {

inline constexpr int64_t kCheckedBytes = int64_t{1} << 20;

enum class CheckpointFileKind : uint8_t { kParameters, kOptimizer, kIndex };

struct CheckpointFile {
  std::string name;  // without directory
  CheckpointFileKind kind = CheckpointFileKind::kParameters;
  int64_t bytes = 0;
  std::string sha256;
  // Of each kCheckedBytes of the file, the last one maybe shorter, so that a part of it can be
  // verified; none for the index.
  std::vector<uint32_t> crc32c;
  bool operator==(const CheckpointFile&) const = default;
};

struct Manifest {
  static constexpr int kFormatVersion = 2;

  TrainingProgress progress;
  uint64_t layout_fingerprint = 0;
  TensorDigests tensors;  // of the parameters
  std::vector<CheckpointFile> files;

  // That of all parameters.
  std::string ParametersSha256() const { return CombineDigests(tensors); }
  bool operator==(const Manifest&) const = default;
};

// The manifest of the checkpoint that these parts make. FAILED_PRECONDITION if they are not of the
// same state and layout. Requires: a part.
absl::StatusOr<Manifest> MergeParts(absl::Span<const Manifest> parts);

// The text of manifest.json. INVALID_ARGUMENT if the job is not UTF-8.
absl::StatusOr<std::string> SerializeManifest(const Manifest& manifest);

// DATA_LOSS for text that is not a manifest or fails its checksum, FAILED_PRECONDITION for a format
// version this program does not know. `path` is for messages.
absl::StatusOr<Manifest> ParseManifest(absl::string_view text, const std::string& path);

}  // namespace muster

#endif  // MUSTER_WORKER_CHECKPOINT_MANIFEST_H_
