#include "client/job_file.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "client/job/config_node.h"
#include "client/job/message_mapper.h"
#include "client/job/readers.h"
#include "client/job/textproto_reader.h"
#include "google/protobuf/descriptor.h"
#include "proto/convert/job.h"

namespace muster {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

struct Ending {
  const char* text;
  JobFileFormat format;
};
constexpr Ending kEndings[] = {
    {".yaml", JobFileFormat::kYaml},       {".yml", JobFileFormat::kYaml},
    {".json", JobFileFormat::kJson},       {".textproto", JobFileFormat::kTextproto},
    {".txtpb", JobFileFormat::kTextproto}, {".pbtxt", JobFileFormat::kTextproto},
};

// The file's name without directory and ending.
std::string Stem(absl::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash != absl::string_view::npos) path.remove_prefix(slash + 1);
  const size_t dot = path.rfind('.');
  return std::string(dot == absl::string_view::npos ? path : path.substr(0, dot));
}

// Well-formed UTF-8 without NUL.
bool IsText(absl::string_view bytes) {
  while (!bytes.empty()) {
    const size_t length = bytes.front() == '\0' ? 0 : Utf8SequenceLength(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

Position PositionOf(const FieldPositions& positions, std::string path) {
  // The nearest field around it that the file gives.
  while (!path.empty()) {
    const auto found = positions.find(path);
    if (found != positions.end()) return found->second;
    const size_t cut = path.find_last_of(".[");
    path.resize(cut == std::string::npos ? 0 : cut);
  }
  return {1, 1};
}

// Escapes can make text that protobuf could not send.
absl::Status CheckText(const Message& message, const std::string& path,
                       const FieldPositions& positions) {
  const Reflection* reflection = message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const std::string field_path = path.empty() ? field->name() : path + "." + field->name();
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (!is_message && field->cpp_type() != FieldDescriptor::CPPTYPE_STRING) continue;
    const int count = field->is_repeated() ? reflection->FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (is_message) {
        const Message& child = field->is_repeated()
                                   ? reflection->GetRepeatedMessage(message, field, i)
                                   : reflection->GetMessage(message, field);
        MUSTER_RETURN_IF_ERROR(CheckText(child, field_path, positions));
        continue;
      }
      const std::string text = field->is_repeated()
                                   ? reflection->GetRepeatedString(message, field, i)
                                   : reflection->GetString(message, field);
      if (!IsText(text)) {
        return PositionedError(PositionOf(positions, field_path), field_path,
                               "must be UTF-8 text without NUL");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Parse(absl::string_view text, JobFileFormat format, v1::JobDescription* job,
                   FieldPositions* positions) {
  switch (format) {
    case JobFileFormat::kYaml: {
      MUSTER_ASSIGN_OR_RETURN(const ConfigNode root, ReadYaml(text));
      return FillMessage(root, {}, job, positions);
    }
    case JobFileFormat::kJson: {
      MUSTER_ASSIGN_OR_RETURN(const ConfigNode root, ReadJson(text));
      return FillMessage(root, {.protobuf_json = true}, job, positions);
    }
    case JobFileFormat::kTextproto:
      return ReadTextproto(text, job, positions);
  }
  return absl::InternalError("unknown job file format");
}

// The position of the field that a validation error ("FIELD: what") begins with.
absl::Status Locate(const absl::Status& status, const FieldPositions& positions) {
  const absl::string_view message = status.message();
  const size_t colon = message.find(':');
  const Position position =
      PositionOf(positions, std::string(message.substr(0, colon == message.npos ? 0 : colon)));
  return absl::Status(status.code(),
                      absl::StrCat(position.line, ":", position.column, ": ", message));
}

absl::StatusOr<v1::JobDescription> ParseWithPositions(absl::string_view text, JobFileFormat format,
                                                      const std::string& path,
                                                      const JobDefaults& defaults) {
  if (text.size() > kMaxJobFileBytes) {
    return PositionedError({1, 1}, "", absl::StrCat("larger than ", kMaxJobFileBytes, " bytes"));
  }
  if (!IsText(text)) return PositionedError({1, 1}, "", "not a text file in UTF-8");
  v1::JobDescription job;
  FieldPositions positions;
  MUSTER_RETURN_IF_ERROR(Parse(text, format, &job, &positions));
  MUSTER_RETURN_IF_ERROR(CheckText(job, "", positions));
  if (job.name().empty()) job.set_name(Stem(path));
  if (defaults) defaults(&job);
  const auto spec = JobSpecFromProto(job);
  if (!spec.ok()) return Locate(spec.status(), positions);
  return job;
}

}  // namespace

absl::StatusOr<JobFileFormat> JobFileFormatOf(absl::string_view path) {
  for (const Ending& ending : kEndings) {
    if (absl::EndsWithIgnoreCase(path, ending.text)) return ending.format;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      path,
      ": the ending does not tell the format; name it .yaml, .yml, .json, .textproto, .txtpb or "
      ".pbtxt"));
}

absl::StatusOr<v1::JobDescription> ParseJob(absl::string_view text, JobFileFormat format,
                                            const std::string& path, const JobDefaults& defaults) {
  auto job = ParseWithPositions(text, format, path, defaults);
  if (!job.ok()) {
    // It may quote the file.
    const absl::Status error = StatusForPeople(job.status());
    return absl::Status(error.code(), absl::StrCat(path, ":", error.message()));
  }
  return job;
}

absl::StatusOr<v1::JobDescription> ReadJobFile(const std::string& path,
                                               const JobDefaults& defaults) {
  MUSTER_ASSIGN_OR_RETURN(const JobFileFormat format, JobFileFormatOf(path));
  PosixFileSystem files;
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(files, path, kMaxJobFileBytes));
  return ParseJob(text, format, path, defaults);
}

}  // namespace muster
