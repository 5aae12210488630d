#include "client/job/textproto_reader.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "client/job/closest_name.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/text_format.h"

namespace muster {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;
using google::protobuf::io::ArrayInputStream;
using google::protobuf::io::Tokenizer;

// Keeps the first error; lines and columns come counted from 0.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (text_.empty()) {
      position_ = {line + 1, column + 1};
      text_ = message;
    }
  }
  Position position() const { return position_; }
  const std::string& text() const { return text_; }

 private:
  Position position_;
  std::string text_;
};

class IgnoreErrors final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, int, const std::string&) override {}
};

struct FieldStart {
  Position position;
  std::string path;
};

// The fields of the text in its order, by its tokens alone: the parser tells neither the field an
// error is in, nor where a field was that turns out wrong later.
std::vector<FieldStart> ScanFields(absl::string_view text) {
  ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  IgnoreErrors errors;
  Tokenizer tokens(&stream, &errors);
  tokens.set_comment_style(Tokenizer::SH_COMMENT_STYLE);
  std::vector<FieldStart> fields;
  std::vector<std::string> open;  // messages and lists around the token
  std::string name;               // of the field whose value comes next
  bool value_follows = false;     // after a colon or in a list an identifier is a value
  // Beyond these limits the parser stops as well, or the job is refused for its fields.
  while (tokens.Next() && fields.size() < kMaxConfigNodes &&
         open.size() <= size_t{2} * kMaxConfigDepth) {
    const Tokenizer::Token& token = tokens.current();
    const bool in_list = !open.empty() && open.back() == "[";
    if (token.type == Tokenizer::TYPE_IDENTIFIER && !value_follows && !in_list) {
      name = token.text;
      std::vector<std::string> path;
      for (const std::string& part : open) {
        if (part != "[") path.push_back(part);
      }
      path.push_back(name);
      fields.push_back({{token.line + 1, token.column + 1}, absl::StrJoin(path, ".")});
    } else if (token.text == ":") {
      value_follows = true;
      continue;
    } else if (token.text == "{" || token.text == "<") {
      open.push_back(in_list ? "" : name);
      if (open.back().empty()) open.back() = name;
    } else if (token.text == "[") {
      open.push_back("[");
    } else if (token.text == "}" || token.text == ">" || token.text == "]") {
      if (!open.empty()) open.pop_back();
    } else if (token.text == "-") {
      continue;
    }
    value_follows = false;
  }
  return fields;
}

// "Message type "T" has no field named "F"." as the other formats say it.
std::string Rephrase(const std::string& text, const Message& root) {
  constexpr absl::string_view kType = "Message type \"";
  constexpr absl::string_view kField = "\" has no field named \"";
  const size_t middle = text.find(std::string(kField));
  if (!absl::StartsWith(text, kType) || middle == std::string::npos) return text;
  const std::string type_name = text.substr(kType.size(), middle - kType.size());
  const size_t begin = middle + kField.size();
  const std::string field = text.substr(begin, text.find('"', begin) - begin);
  const Descriptor* type = root.GetDescriptor()->file()->pool()->FindMessageTypeByName(type_name);
  if (type == nullptr) return text;
  std::vector<std::string> names;
  for (int i = 0; i < type->field_count(); ++i) names.push_back(type->field(i)->name());
  return absl::StrCat("no such field; ", Suggestion(field, names));
}

}  // namespace

absl::Status ReadTextproto(absl::string_view text, Message* message, FieldPositions* positions) {
  const std::vector<FieldStart> fields = ScanFields(text);
  FirstError errors;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.SetRecursionLimit(kMaxConfigDepth);
  ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  if (!parser.Parse(&stream, message)) {
    std::string path;
    for (const FieldStart& field : fields) {
      if (field.position <= errors.position()) path = field.path;
    }
    return PositionedError(
        errors.position(), path,
        errors.text().empty() ? "not valid text format" : Rephrase(errors.text(), *message));
  }
  for (const FieldStart& field : fields) positions->emplace(field.path, field.position);
  return absl::OkStatus();
}

}  // namespace muster
