#include "client/launcher/log_view.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "nlohmann/json.hpp"

namespace muster {
namespace {

using nlohmann::json;

constexpr size_t kMaxLineBytes = 64 << 10;

// The member of a type, or `other` if it is missing or of another type.
template <typename T>
T Get(const json& object, const char* key, T other) {
  const auto found = object.find(key);
  if (found == object.end()) return other;
  if constexpr (std::is_same_v<T, std::string>) {
    return found->is_string() ? found->template get<std::string>() : other;
  } else {
    return found->is_number_integer() ? found->template get<T>() : other;
  }
}

char LevelLetter(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return 'D';
    case LogLevel::kInfo:
      return 'I';
    case LogLevel::kWarning:
      return 'W';
    case LogLevel::kError:
      return 'E';
    case LogLevel::kOff:
      break;
  }
  return '?';
}

std::string ValueText(const json& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

LogLine ReadLogLine(absl::string_view line) {
  const json object = json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || !object.contains("event")) {
    return {LogLevel::kError, TextForPeople(line, line.size())};
  }
  LogLine result;
  // spdlog's own names for the levels are those of Name(LogLevel).
  const auto level = ParseLogLevel(Get<std::string>(object, "level", "info"));
  result.level = level.ok() ? *level : LogLevel::kError;
  // "2024-05-06T12:34:56.789012Z": the day is known.
  const std::string time = Get<std::string>(object, "time", "");
  if (time.size() >= 23) absl::StrAppend(&result.text, time.substr(11, 12), " ");
  absl::StrAppend(&result.text, std::string(1, LevelLetter(result.level)), " ",
                  Get<std::string>(object, "event", ""), ": ",
                  Get<std::string>(object, "text", ""));
  if (const auto fields = object.find("fields"); fields != object.end() && fields->is_object()) {
    for (const auto& [key, value] : fields->items()) {
      if (value.is_string() && value.get_ref<const std::string&>().empty()) continue;
      absl::StrAppend(&result.text, " ", key, "=", ValueText(value));
    }
  }
  const int64_t rank = Get<int64_t>(object, "rank", -1);
  const int64_t epoch = Get<int64_t>(object, "epoch", 0);
  if (epoch > 0) {
    absl::StrAppend(&result.text, " (", rank >= 0 ? absl::StrCat("rank ", rank, ", ") : "",
                    "epoch ", epoch, ", step ", Get<int64_t>(object, "step", 0), ")");
  }
  // A line must not steer the terminal.
  result.text = TextForPeople(result.text, result.text.size());
  return result;
}

std::vector<std::string> LineSplitter::Add(absl::string_view bytes) {
  std::vector<std::string> lines;
  while (!bytes.empty()) {
    const size_t newline = bytes.find('\n');
    const size_t room = kMaxLineBytes - partial_.size();
    if (newline == absl::string_view::npos && bytes.size() < room) {
      absl::StrAppend(&partial_, bytes);
      break;
    }
    const bool whole = newline != absl::string_view::npos && newline <= room;
    const size_t length = whole ? newline : room;
    absl::StrAppend(&partial_, bytes.substr(0, length));
    lines.push_back(std::exchange(partial_, ""));
    bytes.remove_prefix(length + (whole ? 1 : 0));
  }
  return lines;
}

std::string LineSplitter::Rest() { return std::exchange(partial_, ""); }

}  // namespace muster
