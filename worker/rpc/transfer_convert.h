// Between the domain types of state transfer and their wire form. Decoding checks form and bounds;
// FromProto errors are INVALID_ARGUMENT (of a request) or DATA_LOSS (of what a source sends). Pure
// and thread-safe. For worker/rpc only.
#ifndef MUSTER_WORKER_RPC_TRANSFER_CONVERT_H_
#define MUSTER_WORKER_RPC_TRANSFER_CONVERT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "muster/v1/worker.pb.h"
#include "worker/rpc/state_source.h"

namespace muster {

v1::LearnRequest ToProto(const LearnRequest& request);
absl::StatusOr<LearnRequest> FromProto(const v1::LearnRequest& request);

v1::SnapshotHeader ToProto(const SnapshotHeader& header);
absl::StatusOr<SnapshotHeader> FromProto(const v1::SnapshotHeader& header);

// Everything of the item but its gradient.
v1::StepRecord ToProto(const StepItem& item);
absl::StatusOr<StepItem> FromProto(const v1::StepRecord& record);

// Elements as f32 little-endian.
std::string EncodeElements(absl::Span<const float> elements);
// Checks the checksum and that there is a whole number of elements, at least one. Requires: the
// result is used before `data` changes; it may be unaligned, so copy it out with DecodeElements.
absl::StatusOr<int64_t> CheckElements(absl::string_view data, uint32_t crc32c);
// Requires: data.size() == 4 * out.size().
void DecodeElements(absl::string_view data, absl::Span<float> out);

}  // namespace muster

#endif  // MUSTER_WORKER_RPC_TRANSFER_CONVERT_H_
