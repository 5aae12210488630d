#include "tests/fuzz/fuzz_target.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"

namespace muster {
namespace {

constexpr size_t kMaxMessageBytes = 2'000;

}  // namespace

FuzzOutcome Refused(const absl::Status& status, std::initializer_list<absl::StatusCode> allowed) {
  MUSTER_CHECK(std::find(allowed.begin(), allowed.end(), status.code()) != allowed.end())
      << status.ToString();
  const std::string message(status.message());
  MUSTER_CHECK(!message.empty()) << status.ToString();
  MUSTER_CHECK(message.size() <= kMaxMessageBytes) << message.size() << " bytes: " << message;
  // What already fits a line is left as it is.
  MUSTER_CHECK(TextForPeople(message, kMaxMessageBytes) == message) << message;
  return FuzzOutcome::kRefused;
}

}  // namespace muster
