// Early return on errors.
//
//   MUSTER_RETURN_IF_ERROR(DoIt());
//   MUSTER_ASSIGN_OR_RETURN(auto value, Compute());
#ifndef MUSTER_BASE_STATUS_MACROS_H_
#define MUSTER_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#define MUSTER_RETURN_IF_ERROR(expression)           \
  do {                                               \
    absl::Status muster_status_ = (expression);      \
    if (!muster_status_.ok()) return muster_status_; \
  } while (false)

#define MUSTER_MACRO_CONCAT_INNER(a, b) a##b
#define MUSTER_MACRO_CONCAT(a, b) MUSTER_MACRO_CONCAT_INNER(a, b)

#define MUSTER_ASSIGN_OR_RETURN(declaration, expression) \
  MUSTER_ASSIGN_OR_RETURN_IMPL(MUSTER_MACRO_CONCAT(muster_or_, __LINE__), declaration, expression)

#define MUSTER_ASSIGN_OR_RETURN_IMPL(temporary, declaration, expression) \
  auto temporary = (expression);                                         \
  if (!temporary.ok()) return std::move(temporary).status();             \
  declaration = *std::move(temporary)

namespace muster {

// The same code, with "context: " before the message.
inline absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(context, ": ", status.message()));
}

}  // namespace muster

#endif  // MUSTER_BASE_STATUS_MACROS_H_
