// Between messages of the parameter server's API and the values of its core, with all checks of
// form. What depends on a table the core checks. INVALID_ARGUMENT names the field. Pure;
// thread-safe.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_RPC_TABLE_CONVERT_H_
#define MUSTER_SERVER_PARAMETER_SERVER_RPC_TABLE_CONVERT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/dtype.h"
#include "muster/v1/parameter_server.pb.h"
#include "server/parameter_server/core/table_directory.h"
#include "server/parameter_server/core/table_messages.h"
#include "server/parameter_server/core/table_spec.h"
#include "state/gradient_norm.h"

namespace muster {

// Writes the optimizer's groups into the tensors. What depends on several fields Resolve
// (table_spec.h) checks.
absl::StatusOr<TableSpec> TableSpecFromProto(const v1::TableSpec& from);

absl::StatusOr<ContributorId> ContributorFromProto(const v1::Contributor& from,
                                                   absl::string_view path);
absl::StatusOr<DType> ElementTypeFromProto(v1::ElementType from, absl::string_view path);

// What a push says before its data.
struct PushHeader {
  std::string table;
  ContributorId from;
  PushId id;
  int64_t samples = 0;
  DType type = DType::kF32;
  Range range;         // dense
  int32_t chunks = 0;  // sparse; 0: it is dense
  bool assign = false;
};
absl::StatusOr<PushHeader> PushFromProto(const v1::Push& from);

struct PullHeader {
  std::string table;
  std::optional<ContributorId> from;
  Range range;  // dense; count 0: all of it
  std::vector<int64_t> rows;
  Version min_version = 0;
  DType type = DType::kF32;
};
absl::StatusOr<PullHeader> PullFromProto(const v1::Pull& from);

void ToProto(const SquaredSum& sum, google::protobuf::RepeatedField<int64_t>* words);
absl::StatusOr<SquaredSum> SquaredSumFromProto(
    const google::protobuf::RepeatedField<int64_t>& words);

// All but the counts that change.
v1::TableInfo InfoOf(const AnyTable& table);

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_RPC_TABLE_CONVERT_H_
