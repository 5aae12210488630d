// JSON in and out with statuses instead of exceptions. Internal to this folder: keep it out of
// headers, the JSON library compiles slowly. Functions are pure.
#ifndef MUSTER_WORKER_CHECKPOINT_JSON_H_
#define MUSTER_WORKER_CHECKPOINT_JSON_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace muster {

// DATA_LOSS for text that is not one JSON value, an object with a repeated key, or a value that
// nests too deep to be worked with by recursion. `what` names the text in messages
// ("/runs/1/manifest.json").
absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text, absl::string_view what);

// INVALID_ARGUMENT for a string that is not UTF-8. `indent` -1: on one line. The keys of objects
// are in the order of their bytes.
absl::StatusOr<std::string> SerializeJson(const nlohmann::json& value, absl::string_view what,
                                          int indent = -1);

// Members of an object; DATA_LOSS where it is missing, of another type or out of range.
// An integer that is not negative.
absl::StatusOr<int64_t> JsonCount(const nlohmann::json& object, const std::string& key,
                                  absl::string_view what);
absl::StatusOr<uint64_t> JsonUint64(const nlohmann::json& object, const std::string& key,
                                    absl::string_view what);
absl::StatusOr<std::string> JsonString(const nlohmann::json& object, const std::string& key,
                                       absl::string_view what);

}  // namespace muster

#endif  // MUSTER_WORKER_CHECKPOINT_JSON_H_
