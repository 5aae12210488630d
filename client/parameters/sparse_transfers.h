// The messages of pushes and pulls of a sparse table's part. Ends are of one attempt; memory given
// to them must outlive it.
#ifndef MUSTER_CLIENT_PARAMETERS_SPARSE_TRANSFERS_H_
#define MUSTER_CLIENT_PARAMETERS_SPARSE_TRANSFERS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/dtype.h"
#include "client/parameters/dense_transfers.h"
#include "client/parameters/transfer_call.h"
#include "muster/v1/parameter_server.pb.h"
#include "state/range.h"

namespace muster {

// Where in a list of rows those of one part stand.
std::vector<size_t> PlacesIn(absl::Span<const int64_t> rows, Range part);

struct SparseValues {
  absl::Span<const int64_t> rows;  // all
  absl::Span<const float> values;  // of all rows
  int64_t width = 0;
  absl::Span<const size_t> places;  // of this part
};
// Sends the rows at `places`; a push without rows is one message.
TransferCall::Ends PushRowsEnds(const v1::Push& push, const SparseValues& from, DType type,
                                v1::Pushed* answer);

struct SparseTarget {
  absl::Span<const int64_t> rows;
  absl::Span<float> values;
  int64_t width = 0;
  absl::Span<const size_t> places;
};
// Asks for the rows at `places`, in as many pulls as need be, and writes their values.
TransferCall::Ends PullRowsEnds(const v1::Pull& pull, const SparseTarget& to, DType type,
                                PulledVersions* versions);

}  // namespace muster

#endif  // MUSTER_CLIENT_PARAMETERS_SPARSE_TRANSFERS_H_
