// A sparse table: rows by number, as of an embedding, with their update rule.
//
// Rows come into being when they are first pushed; a row nobody pushed has its initial values, a
// pure function of (seed, table, row, column), and takes no memory. An update touches the rows that
// were pushed, and no other: weight decay and moments of the rest stand still. The rule's count of
// updates (bias corrections) is the table's, not the row's.
//
// Gradients of a row that come several times in one id are added in the order in which they stand,
// then micro-batches of one contributor in their order, then contributors from 0 on, whatever the
// order of arrival; who brings nothing for a row adds nothing. A table that is pushed both by dense
// and by sparse gradients (tied embeddings) takes them as two micro-batches, one of which names all
// rows (SparsePush::rows_range).
//
// Consistency, waiting and errors are as in dense_table.h; so is the division by samples. Clipping
// and the finite check go by all rows of what is applied. CommitMode::kExternal and
// Visibility::kSegments are refused, as is LAMB, whose norms need all rows.
//
// Locking: table.h.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_CORE_SPARSE_TABLE_H_
#define MUSTER_SERVER_PARAMETER_SERVER_CORE_SPARSE_TABLE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/parameter_server/core/buffer_pool.h"
#include "server/parameter_server/core/row_store.h"
#include "server/parameter_server/core/sparse_contributions.h"
#include "server/parameter_server/core/table.h"
#include "state/layout.h"
#include "state/update_rule.h"

namespace muster {

class SparseTable final : public Table {
 public:
  // INVALID_ARGUMENT: the spec. The account must outlive the table. Requires: !spec.dense().
  static absl::StatusOr<std::unique_ptr<SparseTable>> Create(const TableSpec& spec,
                                                             const TableLimits& limits,
                                                             MemoryAccount& account);
  ~SparseTable() override;

  int64_t width() const { return store_.width(); }
  Range range() const { return store_.range(); }  // of rows

  // As DenseTable::Push; and RESOURCE_EXHAUSTED if new rows go beyond the budget, or what is held
  // of pushes beyond its limit: the size of a push to come is not known, so waiting might not end.
  absl::StatusOr<PushResult> Push(const SparsePush& push, absl::Time now);

  // Writes the rows' values, one after the other, if it need not wait. Requires:
  // values.size() == pull.rows.size() * width().
  absl::StatusOr<SparsePullResult> Pull(const SparsePull& pull, absl::Span<float> values,
                                        absl::Time now);

  // Sets rows before anything is pushed, as DenseTable::Assign.
  absl::Status Assign(ContributorId from, absl::Span<const int64_t> rows,
                      const GradientBytes& values, absl::Time now);

  TableMetrics Metrics() const override;
  SnapshotHeader Header() const override;
  absl::Status VisitArrays(VisitPart visit) const override;
  void ReadArray(const SnapshotHeader& header, int array, int64_t offset,
                 absl::Span<float> values) const override;

 private:
  SparseTable(const TableSpec& spec, const TableLimits& limits, MemoryAccount& account,
              Layout layout, std::unique_ptr<UpdateRule> rule);

  bool Has(Range range, Version version) const override;
  void DropIncomplete(int32_t contributor) override;
  absl::Status OnRestoreBegun(const SnapshotHeader& header) override;
  void WriteArray(int array, int64_t offset, absl::Span<const float> values) override;
  void OnRestored(const SnapshotHeader& header) override;
  void OnRestoreAborted() override;

  absl::Status CheckRows(absl::Span<const int64_t> rows) const;
  absl::Status CheckValues(const SparsePush& push, absl::Span<const int64_t> rows) const;
  // What NonfinitePolicy::kRefuse refuses.
  absl::Status CheckFinite(absl::Span<const int64_t> rows, const GradientBytes& values) const;
  absl::Status CheckCount(absl::Span<const int64_t> rows, const GradientBytes& values) const;
  absl::StatusOr<PushResult> PushChecked(const SparsePush& push, absl::Span<const int64_t> rows);
  // Applies a step, or a push, whose gradients are summed.
  void Apply(Step step, int64_t samples, const RowSums& sums);

  const Layout layout_;
  const std::unique_ptr<UpdateRule> rule_;
  MemoryAccount& account_;
  BufferPool pool_;
  RowStore store_;
  SparseContributions received_;
  std::vector<int64_t> restored_rows_;  // while a restore is under way
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_CORE_SPARSE_TABLE_H_
