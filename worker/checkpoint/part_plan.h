// How a checkpoint is cut: into parts, one for each worker that writes, and parts into files.
//
// A part is a range of the flat space. Files hold whole tensors, so that any reader of safetensors
// opens them; so the cut follows tensors, in the order of the layout, as evenly as they allow: a
// part is at most its even share and the largest tensor. A part may be empty. Everybody who knows
// layout, slots and the number of parts knows all files. Pure.
#ifndef MUSTER_WORKER_CHECKPOINT_PART_PLAN_H_
#define MUSTER_WORKER_CHECKPOINT_PART_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "state/layout.h"
#include "state/range.h"
#include "worker/checkpoint/manifest.h"

namespace muster {

// Of each part, in order; together all of the space. Requires: count > 0.
std::vector<Range> RangesOfParts(const Layout& layout, int count);

// What a file holds of one array of the flat space.
struct PlannedTensor {
  const Tensor* tensor = nullptr;
  int array = 0;     // 0: the parameters, then the slots
  std::string name;  // in the file
};

struct PlannedFile {
  std::string name;
  CheckpointFileKind kind = CheckpointFileKind::kParameters;
  int part = 0;
  std::vector<PlannedTensor> tensors;  // never none
};

// All files with tensors of all parts, parameters first. A file holds at most `max_file_bytes` of
// tensors, or one tensor. `layout` must outlive the result. Requires: count > 0, max_file_bytes >
// 0.
std::vector<PlannedFile> PlanFiles(const Layout& layout, absl::Span<const std::string> slots,
                                   int count, int64_t max_file_bytes);

}  // namespace muster

#endif  // MUSTER_WORKER_CHECKPOINT_PART_PLAN_H_
