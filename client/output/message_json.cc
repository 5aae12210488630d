#include "client/output/message_json.h"

#include <charconv>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/timestamp.pb.h"
#include "google/protobuf/util/time_util.h"
#include "nlohmann/json.hpp"

namespace muster {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Json = nlohmann::ordered_json;

Json ToJson(const Message& message);

Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

// The double that prints as the float was written: 0.286 and not 0.28600001335144043.
double ShortestDouble(float value) {
  char text[32];
  const std::to_chars_result end = std::to_chars(text, text + sizeof text, value);
  double result = value;
  std::from_chars(text, end.ptr, result);
  return result;
}

// JOB_STATE_RUNNING of enum JobState to "running".
std::string EnumName(const EnumValueDescriptor* value) {
  std::string prefix;
  for (const char c : value->type()->name()) {
    if (absl::ascii_isupper(c) && !prefix.empty()) prefix += '_';
    prefix += absl::ascii_toupper(c);
  }
  prefix += '_';
  std::string name = value->name();
  if (absl::StartsWith(name, prefix)) name.erase(0, prefix.size());
  return absl::AsciiStrToLower(name);
}

// Element `index` of a repeated field, or the value of another (index -1).
Json Value(const Message& message, const FieldDescriptor* field, int index) {
  const Reflection* r = message.GetReflection();
  const bool repeated = index >= 0;
  const auto id = [&](uint64_t value) -> Json {
    if (field->type() == FieldDescriptor::TYPE_FIXED64) return absl::StrFormat("%016x", value);
    return value;
  };
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return repeated ? r->GetRepeatedInt32(message, field, index) : r->GetInt32(message, field);
    case FieldDescriptor::CPPTYPE_INT64:
      return repeated ? r->GetRepeatedInt64(message, field, index) : r->GetInt64(message, field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return repeated ? r->GetRepeatedUInt32(message, field, index) : r->GetUInt32(message, field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return id(repeated ? r->GetRepeatedUInt64(message, field, index)
                         : r->GetUInt64(message, field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return Number(repeated ? r->GetRepeatedDouble(message, field, index)
                             : r->GetDouble(message, field));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return Number(ShortestDouble(repeated ? r->GetRepeatedFloat(message, field, index)
                                            : r->GetFloat(message, field)));
    case FieldDescriptor::CPPTYPE_BOOL:
      return repeated ? r->GetRepeatedBool(message, field, index) : r->GetBool(message, field);
    case FieldDescriptor::CPPTYPE_STRING:
      return repeated ? r->GetRepeatedString(message, field, index) : r->GetString(message, field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumName(repeated ? r->GetRepeatedEnum(message, field, index)
                               : r->GetEnum(message, field));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ToJson(repeated ? r->GetRepeatedMessage(message, field, index)
                             : r->GetMessage(message, field));
  }
  return nullptr;
}

Json ToJson(const Message& message) {
  if (message.GetDescriptor() == google::protobuf::Timestamp::descriptor()) {
    google::protobuf::Timestamp time;
    time.CopyFrom(message);
    return google::protobuf::util::TimeUtil::ToString(time);
  }
  Json object = Json::object();
  const Reflection* reflection = message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    if (field->is_repeated()) {
      Json list = Json::array();
      for (int k = 0; k < reflection->FieldSize(message, field); ++k) {
        list.push_back(Value(message, field, k));
      }
      object[field->name()] = std::move(list);
    } else if (!field->has_presence() || reflection->HasField(message, field)) {
      object[field->name()] = Value(message, field, -1);
    }
  }
  return object;
}

}  // namespace

std::string MessageToJson(const Message& message) {
  return ToJson(message).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace muster
