#include "proto/rpc/status.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace muster {

grpc::Status ToGrpcStatus(const absl::Status& status) {
  constexpr size_t kMaxMessage = 2048;
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(status.message().substr(0, kMaxMessage)));
}

absl::Status FromGrpcStatus(const grpc::Status& status, absl::string_view peer) {
  if (status.ok()) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  std::string message = status.error_message();
  if (message.empty()) message = absl::StatusCodeToString(code);
  if (code == absl::StatusCode::kUnimplemented) {
    absl::StrAppend(&message, "; is that the right address, and the same version of Muster there?");
  }
  return absl::Status(code, absl::StrCat(peer, ": ", message));
}

}  // namespace muster
