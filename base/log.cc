#include "base/log.h"

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cmath>
#include <mutex>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "spdlog/logger.h"
#include "spdlog/pattern_formatter.h"
#include "spdlog/sinks/base_sink.h"

namespace muster {
namespace {

constexpr size_t kMaxLineBytes = 4096;
static_assert(kMaxLineBytes <= PIPE_BUF, "longer writes to a pipe are not atomic");
constexpr int kPatienceMs = 200;
// Room for what the pattern puts before the payload and for the newline.
constexpr size_t kMaxPayloadBytes = kMaxLineBytes - 128;
// A text this long fits whatever its escaping costs (at most six bytes for one).
constexpr size_t kCutTextBytes = 400;
constexpr size_t kMaxNameBytes = 64;

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::off;
}

LogLevel FromSpdlog(spdlog::level::level_enum level) {
  if (level >= spdlog::level::err) return LogLevel::kError;
  if (level == spdlog::level::warn) return LogLevel::kWarning;
  return level == spdlog::level::info ? LogLevel::kInfo : LogLevel::kDebug;
}

// Writes whole lines to a descriptor and drops those that would wait too long.
class DescriptorSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  DescriptorSink(int descriptor, bool json) : descriptor_(descriptor), json_(json) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    // A reader that stalled once is not waited for again.
    if (!Writable(dropped_ == 0 ? kPatienceMs : 0)) {
      ++dropped_;
      return;
    }
    if (dropped_ > 0) {
      spdlog::memory_buf_t notice;
      const std::string text =
          json_ ? absl::StrCat("{\"event\":\"log_lines_dropped\",\"count\":", dropped_, "}\n")
                : absl::StrCat("log_lines_dropped: ", dropped_, " missing here\n");
      notice.append(text.data(), text.data() + text.size());
      dropped_ = 0;
      Write(notice);
      if (!Writable(kPatienceMs)) {
        ++dropped_;
        return;
      }
    }
    Write(line);
  }
  void flush_() override {}

  bool Writable(int timeout_ms) const {
    pollfd entry = {descriptor_, POLLOUT, 0};
    int result;
    do {
      result = poll(&entry, 1, timeout_ms);
    } while (result < 0 && errno == EINTR);
    return result > 0 && (entry.revents & (POLLERR | POLLNVAL)) == 0;
  }

  // There is nobody to tell if this fails.
  void Write(const spdlog::memory_buf_t& line) const {
    size_t done = 0;
    while (done < line.size()) {
      const ssize_t count = write(descriptor_, line.data() + done, line.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return;
      done += static_cast<size_t>(count);
    }
  }

  const int descriptor_;
  const bool json_;
  int64_t dropped_ = 0;  // guarded by base_sink's mutex
};

class FunctionSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit FunctionSink(std::function<void(LogLevel, absl::string_view)> write)
      : write_(std::move(write)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    write_(FromSpdlog(message.level), absl::string_view(line.data(), line.size() - 1));
  }
  void flush_() override {}

  const std::function<void(LogLevel, absl::string_view)> write_;
};

// A JSON string literal; bytes that are not UTF-8 are replaced.
std::string JsonString(absl::string_view text) {
  return nlohmann::json(std::string(text))
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// A line must stay one line, and a message must not steer the terminal.
std::string OneLine(absl::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (const char c : text) {
    if (c == '\n') {
      result += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      absl::StrAppendFormat(&result, "\\x%02x", static_cast<unsigned char>(c));
    } else {
      result += c;
    }
  }
  return result;
}

std::string NumberText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return absl::StrFormat("%.6g", value);
}

struct JsonValue {
  std::string operator()(const std::string& value) const { return JsonString(value); }
  std::string operator()(int64_t value) const { return absl::StrCat(value); }
  std::string operator()(uint64_t value) const { return absl::StrCat(value); }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(double value) const {
    // JSON has no such numbers.
    return std::isfinite(value) ? nlohmann::json(value).dump() : JsonString(NumberText(value));
  }
};

struct TextValue {
  std::string operator()(const std::string& value) const {
    std::string text = OneLine(value);
    return text.empty() || text.find(' ') != std::string::npos ? absl::StrCat("\"", text, "\"")
                                                               : text;
  }
  std::string operator()(int64_t value) const { return absl::StrCat(value); }
  std::string operator()(uint64_t value) const { return absl::StrCat(value); }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(double value) const { return NumberText(value); }
};

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return "unknown";
  return name;
}

}  // namespace

const char* Name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
    case LogLevel::kOff:
      return "off";
  }
  return "?";
}

absl::StatusOr<LogLevel> ParseLogLevel(absl::string_view name) {
  for (const LogLevel level :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError, LogLevel::kOff}) {
    if (name == Name(level)) return level;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("log level \"", name, "\" is not one of debug, info, warning, error, off"));
}

absl::StatusOr<LogFormat> ParseLogFormat(absl::string_view name) {
  if (name == "auto") return LogFormat::kAuto;
  if (name == "text") return LogFormat::kText;
  if (name == "json") return LogFormat::kJson;
  return absl::InvalidArgumentError(
      absl::StrCat("log format \"", name, "\" is not one of auto, text, json"));
}

struct Logger::Impl {
  explicit Impl(LoggerOptions options)
      : json(options.format == LogFormat::kJson ||
             (options.format == LogFormat::kAuto &&
              (options.write != nullptr || isatty(options.descriptor) == 0))),
        host(options.host.empty() ? HostName() : options.host, 0, kMaxNameBytes),
        process(options.process, 0, kMaxNameBytes) {
    const bool color = !json && options.write == nullptr && isatty(options.descriptor) != 0;
    spdlog::sink_ptr sink;
    if (options.write != nullptr) {
      sink = std::make_shared<FunctionSink>(std::move(options.write));
    } else {
      sink = std::make_shared<DescriptorSink>(options.descriptor, json);
    }
    logger = std::make_unique<spdlog::logger>(process, std::move(sink));
    logger->set_level(ToSpdlog(options.level));
    std::string pattern = "%Y-%m-%dT%H:%M:%S.%eZ %L %v";
    if (json) pattern = R"({"time":"%Y-%m-%dT%H:%M:%S.%fZ","level":"%l",%v})";
    if (color) pattern = "\033[2m%H:%M:%S.%e\033[0m %L %v";
    logger->set_formatter(std::make_unique<spdlog::pattern_formatter>(
        pattern, color ? spdlog::pattern_time_type::local : spdlog::pattern_time_type::utc, "\n"));
  }

  // Everything after time and level. A line that would be too long loses its fields and the end of
  // its text, and says so.
  std::string Payload(absl::string_view event, absl::string_view text,
                      absl::Span<const LogField> fields) const {
    std::string payload =
        json ? JsonPayload(event, text, fields) : TextPayload(event, text, fields);
    if (payload.size() <= kMaxPayloadBytes) return payload;
    event = event.substr(0, kMaxNameBytes);
    const LogField cut("truncated", true);
    text = text.substr(0, kCutTextBytes);
    return json ? JsonPayload(event, text, {&cut, 1}) : TextPayload(event, text, {&cut, 1});
  }

  std::string JsonPayload(absl::string_view event, absl::string_view text,
                          absl::Span<const LogField> fields) const {
    std::string payload = absl::StrCat(
        "\"host\":", JsonString(host), ",\"process\":", JsonString(process),
        ",\"rank\":", rank.load(), ",\"epoch\":", epoch.load(), ",\"step\":", step.load(),
        ",\"event\":", JsonString(event), ",\"text\":", JsonString(text));
    if (fields.empty()) return payload;
    payload += ",\"fields\":{";
    for (size_t i = 0; i < fields.size(); ++i) {
      absl::StrAppend(&payload, i == 0 ? "" : ",", JsonString(fields[i].key), ":",
                      std::visit(JsonValue(), fields[i].value));
    }
    payload += "}";
    return payload;
  }

  std::string TextPayload(absl::string_view event, absl::string_view text,
                          absl::Span<const LogField> fields) const {
    const Rank rank_now = rank.load();
    std::string payload = absl::StrCat(
        OneLine(host), "/", OneLine(process), " r", rank_now < 0 ? "-" : absl::StrCat(rank_now),
        " e", epoch.load(), " s", step.load(), " ", OneLine(event), ": ", OneLine(text));
    for (const LogField& field : fields) {
      absl::StrAppend(&payload, " ", OneLine(field.key), "=", std::visit(TextValue(), field.value));
    }
    return payload;
  }

  const bool json;
  const std::string host;
  const std::string process;
  std::unique_ptr<spdlog::logger> logger;
  // Loads and stores need no order among themselves: a line may carry the step before.
  std::atomic<Rank> rank = -1;
  std::atomic<Epoch> epoch = 0;
  std::atomic<Step> step = 0;
};

Logger::Logger(LoggerOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Logger::~Logger() = default;

void Logger::SetContext(Rank rank, Epoch epoch, Step step) {
  impl_->rank.store(rank, std::memory_order_relaxed);
  impl_->epoch.store(epoch, std::memory_order_relaxed);
  impl_->step.store(step, std::memory_order_relaxed);
}

void Logger::SetLevel(LogLevel level) { impl_->logger->set_level(ToSpdlog(level)); }

bool Logger::Enabled(LogLevel level) const {
  return level != LogLevel::kOff && impl_->logger->should_log(ToSpdlog(level));
}

void Logger::Debug(absl::string_view event, absl::string_view text,
                   std::initializer_list<LogField> fields) {
  Log(LogLevel::kDebug, event, text, fields);
}
void Logger::Info(absl::string_view event, absl::string_view text,
                  std::initializer_list<LogField> fields) {
  Log(LogLevel::kInfo, event, text, fields);
}
void Logger::Warning(absl::string_view event, absl::string_view text,
                     std::initializer_list<LogField> fields) {
  Log(LogLevel::kWarning, event, text, fields);
}
void Logger::Error(absl::string_view event, absl::string_view text,
                   std::initializer_list<LogField> fields) {
  Log(LogLevel::kError, event, text, fields);
}

void Logger::Log(LogLevel level, absl::string_view event, absl::string_view text,
                 absl::Span<const LogField> fields) {
  if (!Enabled(level)) return;
  const std::string payload = impl_->Payload(event, text, fields);
  impl_->logger->log(ToSpdlog(level), spdlog::string_view_t(payload.data(), payload.size()));
}

std::unique_ptr<Logger> MakeSilentLogger() {
  return std::make_unique<Logger>(LoggerOptions{.process = "silent", .level = LogLevel::kOff});
}

}  // namespace muster
