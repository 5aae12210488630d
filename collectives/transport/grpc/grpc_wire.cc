#include "collectives/transport/grpc/grpc_wire.h"

#include "absl/strings/str_cat.h"
#include "collectives/transport/culprit.h"
#include "collectives/transport/tcp_frame.h"

namespace muster {

grpc::Status CloseStatus(const absl::Status& reason, std::optional<Rank> culprit) {
  if (reason.ok()) return grpc::Status::OK;
  TcpControlFrame frame;
  frame.kind = TcpControlFrame::Kind::kAbort;
  frame.code = reason.code();
  frame.culprit = culprit;
  frame.text = std::string(reason.message());
  return grpc::Status(static_cast<grpc::StatusCode>(reason.code()), "the mesh was aborted",
                      EncodeControlFrame(frame));
}

std::optional<absl::Status> AbortIn(const grpc::Status& status, Rank from) {
  std::string details = status.error_details();
  const auto frame = TakeControlFrame(&details);
  if (!frame.ok() || !frame->has_value() || (*frame)->kind != TcpControlFrame::Kind::kAbort) {
    return std::nullopt;
  }
  return WithCulprit(
      absl::Status((*frame)->code, absl::StrCat("rank ", from, " aborted: ", (*frame)->text)),
      (*frame)->culprit);
}

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace muster
