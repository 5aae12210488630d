// Checks of single fields. Each error is INVALID_ARGUMENT and reads
//   <path>: must be <what>, got <value>
// Pure and thread-safe; for proto/convert, and for */rpc where messages are converted there.
#ifndef MUSTER_PROTO_CONVERT_FIELD_H_
#define MUSTER_PROTO_CONVERT_FIELD_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/text.h"

namespace muster {

// "path.name"; just `name` if `path` is empty.
std::string Field(absl::string_view path, absl::string_view name);

absl::Status FieldError(absl::string_view path, absl::string_view must_be, absl::string_view got);
absl::Status MissingField(absl::string_view path);

absl::Status CheckRange(absl::string_view path, int64_t value, int64_t least, int64_t most);
// An epoch, a term or a branch: at most kMaxEpoch.
absl::Status CheckEpoch(absl::string_view path, uint64_t value);
absl::Status CheckFinite(absl::string_view path, double value);
absl::Status CheckFiniteAtLeastZero(absl::string_view path, double value);
absl::Status CheckFinitePositive(absl::string_view path, double value);
// [0, 1)
absl::Status CheckFraction(absl::string_view path, double value);

// Text of at most `most` bytes; with `required`, not empty. Control characters are refused: these
// texts end up in log lines and on terminals.
absl::Status CheckText(absl::string_view path, absl::string_view value, size_t most,
                       bool required = false);
// Letters, digits, '.', '_' and '-', the first a letter or digit; 1 to 63 bytes.
absl::Status CheckName(absl::string_view path, absl::string_view value);

}  // namespace muster

#endif  // MUSTER_PROTO_CONVERT_FIELD_H_
