// What a table of a parameter server is: its shape, its update rule, who contributes, and how
// consistent it is. A table is created once from its spec; whoever comes later attaches with the
// same spec, or is told the first difference.
//
// Plain values; the functions are pure.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_CORE_TABLE_SPEC_H_
#define MUSTER_SERVER_PARAMETER_SERVER_CORE_TABLE_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "state/layout.h"
#include "state/range.h"
#include "state/step_scalars.h"
#include "state/update_rule_options.h"

namespace muster {

// Named tensors in one flat space (state/layout.h), of which this server has a range.
struct DenseShape {
  std::vector<TensorSpec> tensors;
  int64_t bucket_elements = int64_t{1} << 18;  // they fix the order of summation, as on workers
  std::optional<Range> range;  // of the padded flat space, in elements; none: all of it
};

// Rows of equal width, of which this server has a range. Rows come into being when they are first
// pushed; until then they have their initial values, which take no memory.
struct SparseShape {
  int64_t rows = 0;
  int64_t width = 0;
  std::optional<Range> range;  // of rows; none: all of them
  Initializer initializer = Initializer::kZero;
  float scale = 0;    // of the initializer
  bool decay = true;  // weight decay applies, to rows when they are pushed
};

enum class Consistency : uint8_t {
  kSynchronous,       // BSP: a step is applied once, when all of it is there, whole
  kBoundedStaleness,  // SSP: pushes apply on arrival; nobody runs ahead of the slowest too far
  kAsynchronous,      // ASP: pushes apply on arrival
};
absl::string_view Name(Consistency consistency);  // "synchronous", ...

// What becomes of a gradient with a NaN or an infinity in it.
enum class NonfinitePolicy : uint8_t {
  kRefuse,  // the push is an error, and nothing of it is added
  kSkip,    // synchronous: the step changes no parameter; else the push changes none
};
absl::string_view Name(NonfinitePolicy policy);  // "refuse", "skip"

// When a synchronous table shows what it has applied.
enum class Visibility : uint8_t {
  kWholeSteps,  // a step at once, when all of the table's range has it
  kSegments,    // each segment (kSegmentElements) as soon as it has the step, so that pulls overlap
                // pushes. Neither clipping, nor skipping, nor LAMB: these need the whole step
};
absl::string_view Name(Visibility visibility);  // "whole steps", "segments"

// Who says that a synchronous step which is all there is applied.
enum class CommitMode : uint8_t {
  kAutomatic,  // the table itself, by its own range's norm
  kExternal,   // a caller, with the sums over all servers of the space (DenseTable::Commit)
};
absl::string_view Name(CommitMode mode);  // "automatic", "external"

struct TableSpec {
  // Letters, digits, '.', '_', '-', '/'; at most kMaxName.
  std::string name;
  std::variant<DenseShape, SparseShape> shape;
  UpdateRuleOptions rule;
  LearningRateOptions learning_rate;
  uint64_t seed = 0;  // of the initial values

  int32_t contributors = 1;
  // Contributions to a step, numbered globally: contributor c of N has those of
  // MicroBatchShare(c, ...) (contributions.h), as workers do. Gradients of one micro-batch that
  // come in several forms (dense and sparse ones of the same table) count as one each.
  int32_t micro_batches = 1;
  Consistency consistency = Consistency::kSynchronous;
  int64_t staleness = 0;  // steps, of kBoundedStaleness
  double clip_norm = 0;   // of the mean gradient; 0: none
  NonfinitePolicy nonfinite = NonfinitePolicy::kRefuse;
  Visibility visibility = Visibility::kWholeSteps;
  CommitMode commit = CommitMode::kAutomatic;

  static constexpr int64_t kMaxName = 256;
  static constexpr int32_t kMaxContributors = 4096;     // BucketSlices::kMaxOwners
  static constexpr int32_t kMaxMicroBatches = 1 << 16;  // a step
  static constexpr int64_t kMaxElements = int64_t{1} << 40;
  static constexpr int64_t kMaxStaleness = 1 << 20;

  bool dense() const { return std::holds_alternative<DenseShape>(shape); }
};

// Elements of a segment of a dense table, unless limits say otherwise: 1 MiB of f32. Segments begin
// at the range's first element. Pushes and pulls in chunks of whole segments cost the fewest
// copies.
inline constexpr int64_t kSegmentElements = int64_t{1} << 18;

// The layout that elements of a table are counted in: a dense table's tensors; a sparse table's
// rows as one tensor, row after row, without its range. INVALID_ARGUMENT.
absl::StatusOr<Layout> LayoutOf(const TableSpec& spec);

// The spec with its range written out, if it can be created. INVALID_ARGUMENT names the field, what
// it must be, and what it is.
absl::StatusOr<TableSpec> Resolve(const TableSpec& spec);

// The first field in which resolved specs differ, with both values: for FAILED_PRECONDITION. None
// if they are the same.
std::optional<std::string> FirstDifference(const TableSpec& existing, const TableSpec& wanted);

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_CORE_TABLE_SPEC_H_
