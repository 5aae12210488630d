// The messages of pushes and pulls of a dense table's part. Ends are of one attempt; memory given
// to them must outlive it.
#ifndef MUSTER_CLIENT_PARAMETERS_DENSE_TRANSFERS_H_
#define MUSTER_CLIENT_PARAMETERS_DENSE_TRANSFERS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "base/dtype.h"
#include "client/parameters/memory_loan.h"
#include "client/parameters/transfer_call.h"
#include "muster/v1/parameter_server.pb.h"

namespace muster {

v1::ElementType ToProto(DType type);

// Sends `values`, by which `head.push` is followed; f32 lies in them until the loan is returned.
// `*answer` is set when it is acknowledged.
TransferCall::Ends PushEnds(const v1::TransferRequest& head, absl::Span<const float> values,
                            DType type, const MemoryLoan& loan, v1::Pushed* answer);

// What the values of a pull are of.
struct PulledVersions {
  int64_t oldest = 0;
  int64_t newest = 0;
  void Add(int64_t version, bool first);
};

// Sends `head.pull` and fills `values` with what comes.
TransferCall::Ends PullEnds(const v1::TransferRequest& head, absl::Span<float> values, DType type,
                            PulledVersions* versions);

// Reads values of `type` from a payload. Requires: it has as many.
void ReadValues(Payload& payload, DType type, absl::Span<float> values);
// Values of `type`, in memory of the slice's own.
grpc::Slice ValuesSlice(absl::Span<const float> values, DType type);

}  // namespace muster

#endif  // MUSTER_CLIENT_PARAMETERS_DENSE_TRANSFERS_H_
