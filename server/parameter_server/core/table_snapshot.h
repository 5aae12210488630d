// All of a table that outlives its process: parameters, optimizer state, versions, and what it
// remembers of pushes so that each counts once. A plain value.
//
// A synchronous table's snapshot is of whole steps: what was received of the step under way is not
// part of it, so contributors send that step again, and what a snapshot has applied is recognised
// as duplicate by its step. Of other tables pushes that are not complete are left out likewise.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_CORE_TABLE_SNAPSHOT_H_
#define MUSTER_SERVER_PARAMETER_SERVER_CORE_TABLE_SNAPSHOT_H_

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "server/parameter_server/core/table_messages.h"
#include "server/parameter_server/core/table_spec.h"

namespace muster {

struct SnapshotHeader {
  TableSpec spec;  // resolved
  Version version = 0;
  int64_t update_count = 0;  // updates applied, less those skipped
  // Visibility::kSegments: by segment, its version.
  std::vector<Version> segment_versions;
  // Not synchronous: by micro-batch, the last step that was applied.
  std::vector<Step> applied_steps;
  std::vector<int64_t> rows;  // sparse: those that were ever pushed, rising
  // Array 0 is the parameters, then come the rule's slots. Dense: of the table's range. Sparse: of
  // `rows`, one after the other.
  int array_count = 0;
  int64_t array_elements = 0;  // of each
};

struct TableSnapshot {
  SnapshotHeader header;
  std::vector<std::vector<float>> arrays;
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_CORE_TABLE_SNAPSHOT_H_
