// What goes into a table and comes out of it. Plain values.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_CORE_TABLE_MESSAGES_H_
#define MUSTER_SERVER_PARAMETER_SERVER_CORE_TABLE_MESSAGES_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "server/parameter_server/core/gradient_bytes.h"
#include "state/range.h"

namespace muster {

// Which state a table is in; only rises. Synchronous tables: the step whose update is the last that
// was applied (or skipped). Others: how many pushes were.
using Version = int64_t;

struct ContributorId {
  int32_t index = 0;  // 0 .. contributors - 1
  Incarnation incarnation;
};

// Most samples of a push: so many that no step's sum of them overflows.
inline constexpr int64_t kMaxSamplesOfPush = int64_t{1} << 40;

// With the range, the logical id of a push: it counts once, however often it is sent. Only the
// contributor that has the micro-batch (contributions.h) may send it.
struct PushId {
  Step step = 0;            // from 1
  int32_t micro_batch = 0;  // 0 .. micro_batches - 1
};

// What a call that cannot go on waits for. It is made again, unchanged, when that has come.
struct Wait {
  enum class For : uint8_t {
    kVersion,   // all of `range` has at least version `value`
    kSlowest,   // the slowest contributor has pushed all of step `value`
    kProgress,  // memory held for early pushes, or for slow readers, has become less, or a step has
                // moved on
  };
  For what = For::kVersion;
  int64_t value = 0;
  Range range;  // of elements or rows
  // Who waits, if it is a contributor. It waits no longer once it is not attached any more: its
  // call is made again, and told why.
  std::optional<ContributorId> from;
};

// A chunk of a push to a dense table. Chunks may come in any cut and order, also again, but chunks
// of one id must agree in what they bring for each element. So that summation cannot stand still
// for want of memory, contributors send ranges in one order, rising or falling, the same for all.
struct DensePush {
  ContributorId from;
  PushId id;
  Range range;  // within the table's
  // That the whole micro-batch sums over; the same in each chunk. 0: others of the step have them.
  int64_t samples = 0;
  GradientBytes values;  // range.count of them
};

// A chunk of a push to a sparse table: rows with their gradients. A row may come several times, in
// a chunk and in several: its gradients are added, and it counts once. An id is complete with its
// last chunk; one without rows is legal.
struct SparsePush {
  ContributorId from;
  PushId id;
  int32_t chunk = 0;
  int32_t chunk_count = 1;
  int64_t samples = 0;              // as in DensePush
  absl::Span<const int64_t> rows;   // borrowed; each within the table's range
  std::optional<Range> rows_range;  // instead of `rows`: all of these
  GradientBytes values;             // row by row
};

struct PushResult {
  enum class Outcome : uint8_t {
    kAdded,      // acknowledge
    kDuplicate,  // was there before; acknowledge
    kMustWait,   // not (wholly) added: make the call again, unchanged, when `wait` has come
  };
  Outcome outcome = Outcome::kAdded;
  Wait wait;
  Version version = 0;  // of the table, afterwards
};

// Who pulls. Readers that contribute nothing need not say.
struct DensePull {
  std::optional<ContributorId> from;
  Range range;              // within the table's
  Version min_version = 0;  // wait for it
};

// Names the memory that a pull shows until it is released.
using PinId = uint64_t;

struct DensePullResult {
  std::optional<Wait> wait;  // if set, nothing else is
  Version version = 0;       // of all of it, or with Visibility::kSegments of its oldest segment
  PinId pin = 0;             // DenseTable::Release(pin) once the memory is no longer read
  // The range's elements, in order. They do not change before the release, whatever is applied.
  std::vector<absl::Span<const float>> pieces;
};

struct SparsePull {
  std::optional<ContributorId> from;
  absl::Span<const int64_t> rows;  // within the table's range; may repeat
  Version min_version = 0;
};

struct SparsePullResult {
  std::optional<Wait> wait;
  Version version = 0;
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_CORE_TABLE_MESSAGES_H_
