// A dense table: a range of a flat space of named tensors, with its update rule.
//
// Synchronous. Step k is applied once all micro-batches of it have been pushed, for all elements of
// the table that train; padding and frozen tensors need none, and what is pushed for them is
// ignored. The sum is the canonical one (canonical_sum.h), so its bits depend neither on the order
// of arrival, nor on how pushes are cut: they are those that workers make of the same contributions
// by all-reduce. A push of step version + 2 or later waits: the step under
// way is all that is held.
//
// Bounded staleness, asynchronous. A push is applied when all of it is there. Steps of one
// micro-batch come one after the other. With bounded staleness s a push of step k, and a pull by a
// contributor that has pushed step k, wait until every attached contributor has pushed step
// k - 1 - s, or k - s.
//
// Gradients are divided by the samples of what is applied: of the step, or of the push. If these
// are none, they are not divided.
//
// Not finite. With NonfinitePolicy::kSkip a step, or a push on arrival, that holds a NaN or an
// infinity changes nothing; with kRefuse none can be pushed, but the sum of finite contributions
// may overflow, and then changes nothing either (with Visibility::kSegments: in the segment where
// it does). Each is counted as skipped.
//
// Locking: table.h.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_CORE_DENSE_TABLE_H_
#define MUSTER_SERVER_PARAMETER_SERVER_CORE_DENSE_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/parameter_server/core/buffer_pool.h"
#include "server/parameter_server/core/canonical_sum.h"
#include "server/parameter_server/core/push_assembly.h"
#include "server/parameter_server/core/table.h"
#include "server/parameter_server/core/versioned_parameters.h"
#include "state/gradient_norm.h"
#include "state/layout.h"
#include "state/update_rule.h"

namespace muster {

// A step that is all there, with CommitMode::kExternal.
struct PreparedStep {
  Step step = 0;
  int64_t samples = 0;
  // Of the summed gradient over what trains of the table's range: to be added over all servers.
  SquaredSum squared_gradient;
};

class DenseTable final : public Table {
 public:
  // INVALID_ARGUMENT: the spec; RESOURCE_EXHAUSTED, with numbers: the account's budget. The account
  // must outlive the table. Requires: spec.dense().
  static absl::StatusOr<std::unique_ptr<DenseTable>> Create(const TableSpec& spec,
                                                            const TableLimits& limits,
                                                            MemoryAccount& account);
  ~DenseTable() override;

  const Layout& layout() const { return layout_; }
  // What this server owns of the layout's space.
  Range range() const { return range_; }

  // Errors name what was expected and what came: INVALID_ARGUMENT (step, micro-batch, range, dtype,
  // count, samples, a value that is not finite), FAILED_PRECONDITION (not attached, fenced, a step
  // out of order), OUT_OF_RANGE (a range that this server does not own).
  absl::StatusOr<PushResult> Push(const DensePush& push, absl::Time now);

  absl::StatusOr<DensePullResult> Pull(const DensePull& pull, absl::Time now);
  // Whether all of the range has at least this version, so that a pull need not wait for it.
  // Requires: the range lies in range().
  bool Has(Range range, Version version) const override;
  // Requires: `pin` came from Pull and was not released.
  void Release(PinId pin);

  // Sets initial values, padding left out. FAILED_PRECONDITION once anything was pushed or pulled.
  absl::Status Assign(ContributorId from, Range range, const GradientBytes& values, absl::Time now);

  // The step that waits for Commit, if there is one.
  const std::optional<PreparedStep>& prepared() const { return prepared_; }
  // Applies it, with sums over all servers, so that all scale, clip and skip alike. OK, and nothing
  // done, for a step that was committed before. FAILED_PRECONDITION: it is not prepared.
  absl::Status Commit(Step step, const SquaredSum& squared_gradient);

  TableMetrics Metrics() const override;
  SnapshotHeader Header() const override;
  absl::Status VisitArrays(VisitPart visit) const override;
  void ReadArray(const SnapshotHeader& header, int array, int64_t offset,
                 absl::Span<float> values) const override;

 private:
  static constexpr int64_t kUnknown = -1;

  DenseTable(const TableSpec& spec, const TableLimits& limits, MemoryAccount& account,
             Layout layout, std::unique_ptr<UpdateRule> rule, Range range);

  void DropIncomplete(int32_t contributor) override;
  absl::Status OnRestoreBegun(const SnapshotHeader& header) override;
  void WriteArray(int array, int64_t offset, absl::Span<const float> values) override;
  void OnRestored(const SnapshotHeader& header) override;
  void OnRestoreAborted() override { SetInitialValues(); }

  absl::Status Allocate();
  void SetInitialValues();
  // Takes memory from the account for arrays to come.
  absl::Status Reserve(int64_t bytes, absl::string_view what, bool keep);
  bool sums() const { return spec_.consistency == Consistency::kSynchronous; }
  bool by_segments() const { return spec_.visibility == Visibility::kSegments; }
  // Nothing in the segment ever changes: it has every version.
  bool still(int segment) const { return units_in_segment_[static_cast<size_t>(segment)] == 0; }
  Version VersionOfSegment(int segment) const;

  absl::Status CheckRange(Range range) const;
  absl::Status CheckCount(Range range, const GradientBytes& values) const;
  // Of `values`, which are the range's, those of a part of it that is to be finite.
  absl::Status CheckFinite(Range part, Range range, const GradientBytes& values) const;
  // What NonfinitePolicy::kRefuse refuses.
  absl::Status CheckGradient(Range range, const GradientBytes& values) const;
  // Of a gradient of the table's range, what trains of `range`.
  bool IsFinite(Range range, absl::Span<const float> gradient) const;
  std::string ElementName(int64_t element) const;
  // Calls visit for the parts of `range` that train.
  void ForEachTrained(Range range, absl::FunctionRef<void(Range part)> visit) const;

  absl::StatusOr<PushResult> PushSynchronous(const DensePush& push);
  absl::Status NoteSamples(const DensePush& push);
  int64_t SamplesOfStep(Step step) const;
  // Whether a push may take so much memory beside what is held: always, if nothing is.
  bool HasRoomFor(int64_t bytes, int64_t held) const;
  void OnUnitComplete(int unit);
  // Whether a push is all that the segment's step consists of, so that it needs no sum.
  bool IsWholeStepOf(const DensePush& push, int segment) const;
  // The sum of a segment of a step, or of a whole step, is there; or the push, if it is all of it.
  void FinishSegment(int segment, const DensePush* whole = nullptr);
  void PrepareStep();
  void CommitPrepared(const SquaredSum& squared_gradient);
  // Makes ready for the segment's next step.
  void ResetSegment(int segment);
  // What table-wide follows from the segments' versions.
  void SettleVersions();

  absl::StatusOr<PushResult> PushOnArrival(const DensePush& push);
  // Applies a whole push, or skips it. `gradient` is the range's.
  void ApplyPush(const DensePush& push, absl::Span<const float> gradient);

  bool needs_squares() const;
  // Finite contributions may have a sum that is not.
  bool may_overflow() const { return sums() && spec_.micro_batches > 1; }
  SquaredSum SquaresOf(absl::Span<const float> gradient) const;
  // Applies the sum of a step, or a push, to the whole range, or skips it.
  void ApplyAll(Step step, int64_t samples, const SquaredSum& squared_gradient,
                absl::Span<const float> gradient);
  absl::Span<const float> PartOf(absl::Span<const float> gradient, int segment) const;

  const Layout layout_;
  const std::unique_ptr<UpdateRule> rule_;
  const Range range_;
  MemoryAccount& account_;
  BufferPool pool_;
  std::optional<VersionedParameters> parameters_;  // always, once created
  std::vector<Range> trained_;  // of the range, what trains: in order, without padding

  // Synchronous.
  PooledFloats sum_;                // of the range
  int64_t partial_sums_bytes_ = 0;  // that may be held whatever the limit
  std::optional<CanonicalSum> canonical_;
  std::vector<int> units_in_segment_;
  std::vector<int> incomplete_units_;  // by segment
  int incomplete_segments_ = 0;        // that lack something of step version() + 1, or have not
                                       // applied it (Visibility::kSegments)
  // Visibility::kSegments: steps under way of which a segment was skipped.
  std::set<Step> skipped_;
  // Of steps under way: the samples of each micro-batch, kUnknown before its first chunk.
  std::map<Step, std::vector<int64_t>> samples_;
  std::optional<PreparedStep> prepared_;

  // Not synchronous.
  std::optional<PushAssembly> assembly_;
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_CORE_DENSE_TABLE_H_
