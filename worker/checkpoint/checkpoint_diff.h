// Compares two checkpoints bit for bit, tensor by tensor, whatever files the tensors lie in.
//
// Parameters and the optimizer's slots count, not what else a manifest says (step, job, number of
// files). Tensors may be of any size: they are read in pieces, verified by the manifest's checksums
// as they come. Functions are thread-safe as long as nobody removes the files.
#ifndef MUSTER_WORKER_CHECKPOINT_CHECKPOINT_DIFF_H_
#define MUSTER_WORKER_CHECKPOINT_CHECKPOINT_DIFF_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/file.h"
#include "base/ids.h"
#include "worker/checkpoint/manifest.h"

namespace muster {

struct TensorForm {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // empty for a scalar
  bool operator==(const TensorForm&) const = default;
};

// Arrays of two: of the first checkpoint and of the second.
struct TensorDifference {
  std::string name;  // of a slot: "<parameter>.<slot>"
  CheckpointFileKind kind = CheckpointFileKind::kParameters;
  // Absent where the checkpoint lacks the tensor.
  std::array<std::optional<TensorForm>, 2> forms;

  // Where both have it in the same form; otherwise nothing below is set.
  int64_t elements = 0;
  int64_t differing = 0;
  int64_t first = 0;           // the first differing element, counted in row-major order
  std::vector<int64_t> index;  // the same, by dimension
  std::array<uint64_t, 2> bits = {};
  std::array<double, 2> values = {};
  double largest = 0;  // |difference|; NaN if one of a pair is not finite
};

struct CheckpointDifference {
  std::array<std::string, 2> paths;
  std::array<Step, 2> steps = {};
  int64_t tensors = 0;   // names in either
  int64_t elements = 0;  // compared
  // Parameters first, in the order of the first checkpoint's files, which is the model's; then
  // what only the second has.
  std::vector<TensorDifference> differences;
  bool equal() const { return differences.empty(); }
};

// NOT_FOUND or DATA_LOSS names the file that is missing or damaged.
absl::StatusOr<CheckpointDifference> CompareCheckpoints(FileSystem& files, const std::string& first,
                                                        const std::string& second);

// For people: a line for the whole, then one for each tensor that differs.
std::vector<std::string> DifferenceLines(const CheckpointDifference& difference);
// For scripts: one JSON object. {"equal", "checkpoints": [{"path", "step"}, ...], "tensors",
// "elements", "differences": [{"tensor", "of": "parameters" | "optimizer", "what": "missing" |
// "form" | "values", "forms": ["f32 (3, 5)" or null, ...], and with "values": "elements",
// "differing", "first", "index", "bits": ["0x3f800000", ...], "values", "largest"}]}. Numbers that
// are not finite are null.
std::string DifferenceJson(const CheckpointDifference& difference);

}  // namespace muster

#endif  // MUSTER_WORKER_CHECKPOINT_CHECKPOINT_DIFF_H_
