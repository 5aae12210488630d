#include "worker/checkpoint/json.h"

#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace muster {
namespace {

using Json = nlohmann::json;

// Writing a value recurses, and no checkpoint nests deeper than five.
constexpr int kMaxDepth = 32;

absl::StatusOr<const Json*> Member(const Json& object, const std::string& key,
                                   absl::string_view what, absl::string_view expected) {
  if (!object.is_object()) {
    return absl::DataLossError(
        absl::StrCat(what, ": expected a JSON object, got a JSON ", object.type_name()));
  }
  const auto found = object.find(key);
  if (found == object.end()) {
    return absl::DataLossError(
        absl::StrCat(what, ": expected a member \"", key, "\" (", expected, "), found none"));
  }
  return &*found;
}

absl::Status WrongType(const Json& value, const std::string& key, absl::string_view what,
                       absl::string_view expected) {
  return absl::DataLossError(absl::StrCat(what, ": member \"", key, "\": expected ", expected,
                                          ", got a JSON ", value.type_name()));
}

}  // namespace

absl::StatusOr<Json> ParseJson(absl::string_view text, absl::string_view what) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  std::string repeated;
  bool too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    // What is too deep is not kept.
    too_deep = too_deep || depth > kMaxDepth;
    switch (event) {
      case Json::parse_event_t::object_start:
        keys.emplace_back();
        break;
      case Json::parse_event_t::object_end:
        keys.pop_back();
        break;
      case Json::parse_event_t::key: {
        const std::string& key = parsed.get_ref<const std::string&>();
        if (!keys.back().insert(key).second) repeated = key;
        break;
      }
      case Json::parse_event_t::array_start:
      case Json::parse_event_t::array_end:
      case Json::parse_event_t::value:
        break;
    }
    return !too_deep;
  };
  try {
    Json value = Json::parse(text.begin(), text.end(), watch);
    if (too_deep) {
      return absl::DataLossError(absl::StrCat(what, ": JSON nested deeper than ", kMaxDepth));
    }
    if (!repeated.empty()) {
      return absl::DataLossError(
          absl::StrCat(what, ": the JSON key \"", repeated, "\" is repeated in one object"));
    }
    return value;
  } catch (const Json::exception& error) {
    return absl::DataLossError(
        absl::StrCat(what, ": not valid JSON: ", absl::string_view(error.what()).substr(0, 200)));
  }
}

absl::StatusOr<std::string> SerializeJson(const Json& value, absl::string_view what, int indent) {
  try {
    return value.dump(indent);
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": cannot be written as JSON: ", error.what()));
  }
}

absl::StatusOr<int64_t> JsonCount(const Json& object, const std::string& key,
                                  absl::string_view what) {
  constexpr absl::string_view kExpected = "an integer from 0 to 2^63-1";
  MUSTER_ASSIGN_OR_RETURN(const Json* value, Member(object, key, what, kExpected));
  // The library stores a number without sign as unsigned.
  if (!value->is_number_unsigned() ||
      value->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return WrongType(*value, key, what, kExpected);
  }
  return value->get<int64_t>();
}

absl::StatusOr<uint64_t> JsonUint64(const Json& object, const std::string& key,
                                    absl::string_view what) {
  constexpr absl::string_view kExpected = "a 64-bit integer without sign";
  MUSTER_ASSIGN_OR_RETURN(const Json* value, Member(object, key, what, kExpected));
  if (!value->is_number_unsigned()) return WrongType(*value, key, what, kExpected);
  return value->get<uint64_t>();
}

absl::StatusOr<std::string> JsonString(const Json& object, const std::string& key,
                                       absl::string_view what) {
  constexpr absl::string_view kExpected = "a string";
  MUSTER_ASSIGN_OR_RETURN(const Json* value, Member(object, key, what, kExpected));
  if (!value->is_string()) return WrongType(*value, key, what, kExpected);
  return value->get<std::string>();
}

}  // namespace muster
