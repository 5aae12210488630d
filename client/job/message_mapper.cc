#include "client/job/message_mapper.h"

#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "client/job/closest_name.h"

namespace muster {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;
using Kind = ConfigNode::Kind;

// What came, for an error message.
std::string Describe(const ConfigNode& node) {
  switch (node.kind) {
    case Kind::kNull:
      return "nothing";
    case Kind::kList:
      return "a list";
    case Kind::kMap:
      return "fields";
    case Kind::kScalar:
      break;
  }
  std::string text = node.scalar.substr(0, 60);
  if (text.size() < node.scalar.size()) text += "...";
  return node.quoted ? absl::StrCat("the text \"", text, "\"") : text;
}

bool IsInfinity(std::string lower) {
  if (!lower.empty() && (lower[0] == '-' || lower[0] == '+')) lower.erase(0, 1);
  return lower == "inf" || lower == ".inf" || lower == "infinity";
}

// Decimal and scientific notation, NaN and infinity as YAML, JSON and C write them.
template <typename T>
bool ParseFloating(const std::string& text, T* value) {
  const std::string lower = absl::AsciiStrToLower(text);
  if (lower == "nan" || lower == ".nan") {
    *value = std::numeric_limits<T>::quiet_NaN();
    return true;
  }
  if (IsInfinity(lower)) {
    *value =
        lower[0] == '-' ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::infinity();
    return true;
  }
  bool parsed;
  if constexpr (std::is_same_v<T, float>) {
    parsed = absl::SimpleAtof(text, value);
  } else {
    parsed = absl::SimpleAtod(text, value);
  }
  // An overflow is not an infinity that somebody asked for.
  return parsed && std::isfinite(*value);
}

// The least and the largest number, for an error message.
template <typename T>
std::string IntegerRange() {
  return absl::StrCat("expected an integer from ", std::numeric_limits<T>::min(), " to ",
                      std::numeric_limits<T>::max());
}

class Mapper {
 public:
  Mapper(const MappingOptions& options, FieldPositions* positions)
      : options_(options), positions_(positions) {}

  absl::Status Fill(const ConfigNode& node, const std::string& path, Message* message) {
    if (node.kind != Kind::kMap) {
      return PositionedError(
          node.position, path,
          absl::StrCat("expected fields", node.kind == Kind::kNull ? " ({} for all defaults)" : "",
                       ", got ", Describe(node)));
    }
    for (const ConfigEntry& entry : node.entries) {
      const Descriptor* type = message->GetDescriptor();
      const FieldDescriptor* field = FindField(type, entry.key);
      const std::string field_path = Join(path, field == nullptr ? entry.key : field->name());
      if (field == nullptr) {
        std::vector<std::string> names;
        for (int i = 0; i < type->field_count(); ++i) names.push_back(type->field(i)->name());
        return PositionedError(entry.position, field_path.substr(0, 200),
                               absl::StrCat("no such field; ", Suggestion(entry.key, names)));
      }
      MUSTER_RETURN_IF_ERROR(CheckFirst(entry, field, path, field_path));
      (*positions_)[field_path] = entry.position;
      MUSTER_RETURN_IF_ERROR(FillField(entry.value, field, field_path, message));
    }
    return absl::OkStatus();
  }

 private:
  static std::string Join(const std::string& path, const std::string& name) {
    return path.empty() ? name : absl::StrCat(path, ".", name);
  }

  const FieldDescriptor* FindField(const Descriptor* type, const std::string& key) const {
    const FieldDescriptor* field = type->FindFieldByName(key);
    if (field == nullptr && options_.protobuf_json) {
      field = type->FindFieldByCamelcaseName(key);
    }
    return field;
  }

  // Neither this field nor a rival of its oneof was given before.
  absl::Status CheckFirst(const ConfigEntry& entry, const FieldDescriptor* field,
                          const std::string& path, const std::string& field_path) const {
    const auto earlier = positions_->find(field_path);
    if (earlier != positions_->end()) {
      return PositionedError(entry.position, field_path,
                             absl::StrCat("given twice; first in line ", earlier->second.line));
    }
    const OneofDescriptor* oneof = field->real_containing_oneof();
    if (oneof == nullptr) return absl::OkStatus();
    for (int i = 0; i < oneof->field_count(); ++i) {
      const auto rival = positions_->find(Join(path, oneof->field(i)->name()));
      if (rival != positions_->end()) {
        return PositionedError(
            entry.position, field_path,
            absl::StrCat("only one of ", oneof->field(i)->name(), " (line ", rival->second.line,
                         ") and ", field->name(), " may be given"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status FillField(const ConfigNode& node, const FieldDescriptor* field,
                         const std::string& path, Message* message) {
    if (!field->is_repeated()) return FillValue(node, field, path, message);
    if (node.kind != Kind::kList) {
      return PositionedError(node.position, path,
                             absl::StrCat("expected a list, got ", Describe(node)));
    }
    for (size_t i = 0; i < node.items.size(); ++i) {
      const std::string item_path = absl::StrCat(path, "[", i, "]");
      (*positions_)[item_path] = node.items[i].position;
      MUSTER_RETURN_IF_ERROR(FillValue(node.items[i], field, item_path, message));
    }
    return absl::OkStatus();
  }

  absl::Status FillValue(const ConfigNode& node, const FieldDescriptor* field,
                         const std::string& path, Message* message) {
    const Reflection* reflection = message->GetReflection();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Fill(node, path,
                    field->is_repeated() ? reflection->AddMessage(message, field)
                                         : reflection->MutableMessage(message, field));
      case FieldDescriptor::CPPTYPE_INT32:
        return FillInteger<int32_t>(node, field, path, message, &Reflection::SetInt32,
                                    &Reflection::AddInt32);
      case FieldDescriptor::CPPTYPE_INT64:
        return FillInteger<int64_t>(node, field, path, message, &Reflection::SetInt64,
                                    &Reflection::AddInt64);
      case FieldDescriptor::CPPTYPE_UINT64:
        return FillInteger<uint64_t>(node, field, path, message, &Reflection::SetUInt64,
                                     &Reflection::AddUInt64);
      case FieldDescriptor::CPPTYPE_FLOAT:
        return FillFloating<float>(node, field, path, message, &Reflection::SetFloat,
                                   &Reflection::AddFloat);
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return FillFloating<double>(node, field, path, message, &Reflection::SetDouble,
                                    &Reflection::AddDouble);
      case FieldDescriptor::CPPTYPE_BOOL: {
        const std::string lower = absl::AsciiStrToLower(node.scalar);
        if (node.kind != Kind::kScalar || node.quoted || (lower != "true" && lower != "false")) {
          return Wrong(node, path, "expected true or false");
        }
        Store(message, field, lower == "true", &Reflection::SetBool, &Reflection::AddBool);
        return absl::OkStatus();
      }
      case FieldDescriptor::CPPTYPE_STRING:
        if (node.kind != Kind::kScalar) return Wrong(node, path, "expected text");
        if (options_.protobuf_json && !node.quoted) {
          return Wrong(node, path, "expected text in quotes");
        }
        if (field->is_repeated()) {
          reflection->AddString(message, field, node.scalar);
        } else {
          reflection->SetString(message, field, node.scalar);
        }
        return absl::OkStatus();
      case FieldDescriptor::CPPTYPE_ENUM:
        return FillEnum(node, field, path, message);
      case FieldDescriptor::CPPTYPE_UINT32:
        break;
    }
    MUSTER_CHECK(false) << field->full_name() << " has a type job files do not support";
    return absl::OkStatus();
  }

  static absl::Status Wrong(const ConfigNode& node, const std::string& path,
                            absl::string_view expected) {
    return PositionedError(node.position, path, absl::StrCat(expected, ", got ", Describe(node)));
  }

  template <typename T>
  static void Store(Message* message, const FieldDescriptor* field, T value,
                    void (Reflection::*set)(Message*, const FieldDescriptor*, T) const,
                    void (Reflection::*add)(Message*, const FieldDescriptor*, T) const) {
    (message->GetReflection()->*(field->is_repeated() ? add : set))(message, field, value);
  }

  template <typename T>
  absl::Status FillInteger(const ConfigNode& node, const FieldDescriptor* field,
                           const std::string& path, Message* message,
                           void (Reflection::*set)(Message*, const FieldDescriptor*, T) const,
                           void (Reflection::*add)(Message*, const FieldDescriptor*, T) const) {
    const bool may_be_quoted = options_.protobuf_json && sizeof(T) == 8;
    T value;
    if (node.kind != Kind::kScalar || (node.quoted && !may_be_quoted) ||
        !absl::SimpleAtoi(node.scalar, &value)) {
      return Wrong(node, path, IntegerRange<T>());
    }
    Store(message, field, value, set, add);
    return absl::OkStatus();
  }

  template <typename T>
  absl::Status FillFloating(const ConfigNode& node, const FieldDescriptor* field,
                            const std::string& path, Message* message,
                            void (Reflection::*set)(Message*, const FieldDescriptor*, T) const,
                            void (Reflection::*add)(Message*, const FieldDescriptor*, T) const) {
    T value;
    if (node.kind != Kind::kScalar || !ParseFloating(node.scalar, &value) ||
        (node.quoted && !(options_.protobuf_json && !std::isfinite(value)))) {
      return Wrong(node, path,
                   absl::StrFormat("expected a number up to %.3g", std::numeric_limits<T>::max()));
    }
    Store(message, field, value, set, add);
    return absl::OkStatus();
  }

  static absl::Status FillEnum(const ConfigNode& node, const FieldDescriptor* field,
                               const std::string& path, Message* message) {
    const EnumDescriptor* type = field->enum_type();
    std::vector<std::string> names;
    for (int i = 0; i < type->value_count(); ++i) {
      const EnumValueDescriptor* value = type->value(i);
      if (value->number() != 0) names.push_back(absl::AsciiStrToLower(value->name()));
      if (node.kind == Kind::kScalar &&
          absl::AsciiStrToUpper(node.scalar) == absl::AsciiStrToUpper(value->name())) {
        if (field->is_repeated()) {
          message->GetReflection()->AddEnum(message, field, value);
        } else {
          message->GetReflection()->SetEnum(message, field, value);
        }
        return absl::OkStatus();
      }
    }
    if (node.kind != Kind::kScalar) return Wrong(node, path, "expected a name");
    return PositionedError(node.position, path,
                           absl::StrCat("no such value \"", node.scalar.substr(0, 60), "\"; ",
                                        Suggestion(node.scalar, names)));
  }

  const MappingOptions options_;
  FieldPositions* const positions_;
};

}  // namespace

absl::Status FillMessage(const ConfigNode& root, const MappingOptions& options, Message* message,
                         FieldPositions* positions) {
  return Mapper(options, positions).Fill(root, "", message);
}

}  // namespace muster
