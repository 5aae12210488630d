// A client's table on one or several parameter servers: as if it were one.
//
//   ParameterTableOptions options;
//   options.servers = {"10.0.0.1:7071", "10.0.0.2:7071"};
//   options.spec = ...;          // muster/v1/parameter_server.proto
//   options.contributor = 0;     // none for one that only reads
//   auto table = ParameterTable::Open(options);
//   std::vector<float> values((*table)->element_count()), gradient(values.size());
//   (*table)->Pull(0, absl::MakeSpan(values));
//   for (Step step = 1; step <= steps; ++step) {
//     ... gradient at `values` ...
//     (*table)->PushPull({.step = step, .micro_batch = 0, .samples = 32}, gradient, step,
//                        absl::MakeSpan(values));
//   }
//
// A dense table is cut into ranges of equal size, one for each server; a sparse one likewise by
// rows. All clients name the servers in the same order.
//
// Every call has a deadline, and repeats what a broken connection cut off until then; since pushes
// are named by step, micro-batch and range, nothing counts twice. Errors name the server.
// UNAVAILABLE and DEADLINE_EXCEEDED: nobody answered, or others did not come, in time; the call may
// be made again. FAILED_PRECONDITION: another process has taken this contributor's place.
//
// Thread-safe, but memory given to a call is the call's until it returns.
#ifndef MUSTER_CLIENT_PARAMETERS_PARAMETER_TABLE_H_
#define MUSTER_CLIENT_PARAMETERS_PARAMETER_TABLE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "base/ids.h"
#include "muster/v1/parameter_server.pb.h"
#include "state/range.h"

namespace muster {

struct ParameterTableOptions {
  std::vector<std::string> servers;  // host:port
  // Of the whole table: without offset and count. Over several servers, clip_norm and SKIP of a
  // synchronous table need EXTERNAL commits, which this class makes.
  v1::TableSpec spec;
  std::optional<int32_t> contributor;
  uint64_t incarnation = 0;  // of this process; 0: drawn
  absl::Duration lease = absl::Seconds(10);
  absl::Duration timeout = absl::Seconds(60);  // of a call
  DType wire_type = DType::kF32;               // or kF16, kBF16: what values are rounded to
};

// What a gradient is of. Steps count from 1.
struct PushOf {
  Step step = 0;
  int32_t micro_batch = 0;
  int64_t samples = 1;
};

struct Pushed {
  bool duplicate = false;  // nothing of it was new
};

struct Pulled {
  // Of the oldest and of the newest of the values. They differ where a table is pulled while it
  // changes, from several servers or in segments.
  int64_t version = 0;
  int64_t newest = 0;
};

class ParameterTable {
 public:
  // Makes the table on every server, or finds it there, and takes the contributor's place.
  static absl::StatusOr<std::unique_ptr<ParameterTable>> Open(const ParameterTableOptions& options);
  // Gives the place up, unless a server does not answer.
  ~ParameterTable();

  // Elements of the whole flat space (dense), or rows (sparse), and where tensors lie.
  int64_t element_count() const;
  absl::StatusOr<Range> TensorRange(absl::string_view name) const;
  // What a server has of it.
  Range RangeOf(int server) const;
  // The step to push next of one of the contributor's micro-batches, as of Open.
  absl::StatusOr<Step> NextStep(int32_t micro_batch) const;

  // Dense tables; spans are of element_count() values.
  absl::StatusOr<Pushed> Push(const PushOf& of, absl::Span<const float> gradient);
  absl::StatusOr<Pulled> Pull(int64_t min_version, absl::Span<float> values);
  // Both at once: values are pulled as soon as they are there.
  absl::StatusOr<Pulled> PushPull(const PushOf& of, absl::Span<const float> gradient,
                                  int64_t min_version, absl::Span<float> values);
  // Values to begin with, before anything is pushed or pulled.
  absl::Status Assign(absl::Span<const float> values);

  // Sparse tables; `values` are row by row. A row may come several times: pushed, it is added up.
  absl::StatusOr<Pushed> PushRows(const PushOf& of, absl::Span<const int64_t> rows,
                                  absl::Span<const float> gradient);
  absl::StatusOr<Pulled> PullRows(int64_t min_version, absl::Span<const int64_t> rows,
                                  absl::Span<float> values);
  absl::Status AssignRows(absl::Span<const int64_t> rows, absl::Span<const float> values);

  // The snapshot of one server's part, piece by piece, each a v1::TableSnapshotPart; an error of
  // `take` ends it.
  absl::Status Snapshot(int server,
                        const std::function<absl::Status(const v1::TableSnapshotPart&)>& take);
  // From what Snapshot gave; `next` returns nothing after the last piece.
  absl::Status Restore(int server,
                       const std::function<std::optional<v1::TableSnapshotPart>()>& next);

  // Gives the contributor's place up.
  absl::Status Detach();
  // Makes calls under way and all later ones return CANCELLED. From any thread.
  void Shutdown();

 private:
  struct Impl;
  explicit ParameterTable(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace muster

#endif  // MUSTER_CLIENT_PARAMETERS_PARAMETER_TABLE_H_
