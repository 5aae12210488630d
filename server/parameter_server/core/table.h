// What dense and sparse tables have in common: contributors, waiting calls, counters, snapshots.
//
// Locking: all calls for one table, releases of pins included, come from one thread at a time;
// whoever shares a table among threads holds one mutex per table. Tables are independent of each
// other but for their MemoryAccount. Time comes in as an argument.
//
// A call that must wait (PushResult::kMustWait, a pull's `wait`) changes nothing that the same call
// would do later (parts of a push that were in their turn stay added), and is parked by its owner
// under a ticket:
//
//   result = table.Push(push, now);
//   if (result.outcome == kMustWait) table.Park(ticket, result.wait);
//   ...
//   // after every call that may change the table:
//   for (Ticket t : table.TakeReady()) make the call of t again;
#ifndef MUSTER_SERVER_PARAMETER_SERVER_CORE_TABLE_H_
#define MUSTER_SERVER_PARAMETER_SERVER_CORE_TABLE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/parameter_server/core/contributions.h"
#include "server/parameter_server/core/contributors.h"
#include "server/parameter_server/core/interval_set.h"
#include "server/parameter_server/core/memory_account.h"
#include "server/parameter_server/core/step_streams.h"
#include "server/parameter_server/core/table_messages.h"
#include "server/parameter_server/core/table_metrics.h"
#include "server/parameter_server/core/table_snapshot.h"
#include "server/parameter_server/core/table_spec.h"
#include "server/parameter_server/core/wait_list.h"

namespace muster {

struct TableLimits {
  // Pushes that came before their turn, or that are not complete. Beyond it they wait; one push
  // always fits, and so do the partial sums of contributors with several micro-batches.
  int64_t held_bytes = int64_t{1} << 30;
  // Older versions that are being read. Beyond it pulls wait.
  int64_t retired_bytes = int64_t{1} << 30;
  // Memory kept for reuse.
  int64_t idle_bytes = int64_t{64} << 20;
  // Of dense tables: the unit of copies and of Visibility::kSegments.
  int64_t segment_elements = kSegmentElements;
};

// How far a table and a contributor are: what whoever attaches needs to go on. A push that was
// under way is sent again from its first chunk. With bounded staleness whoever joins goes on from
// the slowest of those who are attached: steps before that count as applied.
struct AttachResult {
  Version version = 0;
  // The step to push next, by the contributor's own micro-batches: version + 1, or, not
  // synchronous, one beyond the last step applied of each.
  struct Next {
    int32_t micro_batch = 0;
    Step step = 0;
  };
  std::vector<Next> next;
};

class Table {
 public:
  virtual ~Table() = default;
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  const TableSpec& spec() const { return spec_; }
  Version version() const { return version_; }

  absl::StatusOr<AttachResult> Attach(ContributorId id, absl::Time now, absl::Duration lease);
  void Detach(ContributorId id);
  // FAILED_PRECONDITION if the contributor is not attached or was fenced; else renews its lease.
  absl::Status Heartbeat(ContributorId id, absl::Time now);
  // Takes an index away and fences whoever has it, as when it is replaced.
  absl::Status Remove(int32_t index);
  // Frees the indices whose lease has lapsed; they are returned. Pushes of theirs that are complete
  // stay.
  std::vector<int32_t> Expire(absl::Time now);
  absl::Time NextExpiry() const { return contributors_.NextExpiry(); }
  const Contributors& contributors() const { return contributors_; }

  void Park(Ticket ticket, const Wait& wait) { waits_.Park(ticket, wait, progress_); }
  void Unpark(Ticket ticket) { waits_.Remove(ticket); }
  // Tickets of calls to be made again. They wait no longer.
  std::vector<Ticket> TakeReady();
  // All of them: the table is going away.
  std::vector<Ticket> TakeAllWaiting() { return waits_.TakeAll(); }
  size_t waiting() const { return waits_.size(); }

  // The counters, with the gauges as they are now.
  virtual TableMetrics Metrics() const = 0;

  // What a snapshot consists of, as it is now: its header, and its arrays in parts, each element
  // once. Nothing may change the table between the two. A status that `visit` returns ends it.
  virtual SnapshotHeader Header() const = 0;
  using VisitPart =
      absl::FunctionRef<absl::Status(int array, int64_t offset, absl::Span<const float> values)>;
  virtual absl::Status VisitArrays(VisitPart visit) const = 0;
  // Both as a copy, in memory that is not the account's.
  TableSnapshot Snapshot() const;
  // For a snapshot without a copy: reads elements offset, offset + 1, ... of an array. Requires:
  // `header` came from Header(), and changes() has stood still since; the array has them.
  virtual void ReadArray(const SnapshotHeader& header, int array, int64_t offset,
                         absl::Span<float> values) const = 0;
  // Rises whenever values or optimizer state change.
  int64_t changes() const { return changes_; }
  bool restoring() const { return restoring_.has_value(); }

  // Continues from a snapshot, which comes in parts as VisitArrays gave them or in others. Until it
  // is finished or aborted pushes and pulls are UNAVAILABLE. FAILED_PRECONDITION unless nobody has
  // pushed, pulled or restored and the snapshot is of the same spec; INVALID_ARGUMENT if it is no
  // snapshot; RESOURCE_EXHAUSTED for rows beyond the budget.
  absl::Status BeginRestore(const SnapshotHeader& header);
  absl::Status RestorePart(int array, int64_t offset, absl::Span<const float> values);
  // After an error the restore is still under way: what was missing may come, or it is aborted.
  absl::Status FinishRestore();
  // Ends a restore that will not be finished. The table has its initial values again (those that
  // were assigned are lost, too), and is as it was created: another restore may begin. Does nothing
  // if none is under way.
  void AbortRestore();
  // All of it; aborted after an error.
  absl::Status Restore(const TableSnapshot& snapshot);

 protected:
  Table(const TableSpec& spec, const TableLimits& limits);

  // All of `range` has at least this version.
  virtual bool Has(Range range, Version version) const = 0;
  // Drops what was received of this contributor's pushes that are not complete, where their parts
  // could not be mixed with those of another incarnation.
  virtual void DropIncomplete(int32_t contributor) = 0;

  // Makes room; the versions, counts and steps are set by FinishRestore.
  virtual absl::Status OnRestoreBegun(const SnapshotHeader& header) = 0;
  virtual void WriteArray(int array, int64_t offset, absl::Span<const float> values) = 0;
  virtual void OnRestored(const SnapshotHeader& header) = 0;
  virtual void OnRestoreAborted() = 0;

  // "table "name"".
  std::string Label() const;
  // Who pushes, and the id, which must be of the contributor's share. Counts what is refused.
  absl::Status CheckPush(ContributorId from, PushId id, int64_t samples, absl::Time now);
  absl::Status Refused(absl::Status status);
  // The wait of a pull by `from`, if it may not go on yet, or an error.
  absl::StatusOr<std::optional<Wait>> CheckPull(const std::optional<ContributorId>& from,
                                                Range range, Version min_version, absl::Time now);
  // The wait that bounded staleness asks of a push of this step, if any.
  std::optional<Wait> StalenessWait(Step step) const;
  PushResult MustWait(ContributorId from, Wait wait);
  PushResult Duplicate();

  const TableSpec spec_;
  const TableLimits limits_;
  const Contributions contributions_;
  Contributors contributors_;
  std::optional<StepStreams> streams_;  // unless synchronous
  WaitList waits_;
  Version version_ = 0;
  int64_t update_count_ = 0;  // updates applied, less those skipped
  int64_t progress_ = 0;      // events at which Wait::kProgress ends
  int64_t changes_ = 0;       // of values and optimizer state
  bool touched_ = false;      // something was pushed, pulled or restored
  TableMetrics metrics_;

 private:
  struct Restoring {
    SnapshotHeader header;
    std::vector<IntervalSet> have;  // by array
  };
  std::optional<Restoring> restoring_;
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_CORE_TABLE_H_
