// Messages with a payload, as they come from any gRPC client: heads, data, cut in any pieces.
#include <string>
#include <vector>

#include "base/check.h"
#include "muster/v1/parameter_server.pb.h"
#include "proto/rpc/payload_frame.h"
#include "tests/fuzz/targets.h"

namespace muster {
namespace {

using absl::StatusCode;

grpc::ByteBuffer InPieces(absl::string_view bytes, size_t piece) {
  std::vector<grpc::Slice> slices;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size()))) {
    slices.emplace_back(std::string(bytes.substr(0, piece)));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

FuzzOutcome Run(absl::string_view bytes) {
  v1::TransferRequest head;
  Payload payload;
  const absl::Status status = DecodeFrame(InPieces(bytes, bytes.size() + 1), &head, &payload);
  v1::TransferRequest head_in_bytes;
  Payload payload_in_bytes;
  const absl::Status in_bytes = DecodeFrame(InPieces(bytes, 1), &head_in_bytes, &payload_in_bytes);
  MUSTER_CHECK(status == in_bytes);
  v1::TransferRequest whole;
  if (!status.ok()) return Refused(status, {StatusCode::kInvalidArgument});
  // Nothing is taken that protobuf itself does not take, and it says the same.
  MUSTER_CHECK(whole.ParseFromString(std::string(bytes)));
  std::string data(static_cast<size_t>(payload.size()), ' ');
  payload.Read({reinterpret_cast<std::byte*>(data.data()), data.size()});
  MUSTER_CHECK(data == whole.data());
  whole.clear_data();
  MUSTER_CHECK(head.SerializeAsString() == whole.SerializeAsString());
  MUSTER_CHECK(head_in_bytes.SerializeAsString() == whole.SerializeAsString());
  return FuzzOutcome::kAccepted;
}

std::vector<std::string> Seeds() {
  v1::TransferRequest push;
  push.mutable_push()->set_table("embedding");
  push.mutable_push()->mutable_contributor()->set_index(2);
  push.mutable_push()->mutable_contributor()->set_incarnation(77);
  push.mutable_push()->set_step(3);
  push.set_data("payload");
  v1::TransferRequest rows;
  for (const int64_t row : {0, 5, -1, 1 << 30}) rows.add_rows(row);
  rows.set_data(std::string(200, 'x'));
  v1::TransferRequest pull;
  pull.mutable_pull()->set_table("t");
  pull.mutable_pull()->set_min_version(9);
  return {push.SerializeAsString(), rows.SerializeAsString(), pull.SerializeAsString(), ""};
}

}  // namespace

const FuzzTarget kPayloadFrameTarget = {"payload_frame", Run, Seeds, 4'096};

}  // namespace muster
