// Structured log lines: each carries time, level, host, process, rank, epoch, step and event, then
// a sentence for people and fields for programs. Text where a person reads (a terminal), one JSON
// object a line where a program does.
//
//   Logger logger({.process = "worker-2"});
//   logger.Info("joined", "joined the fleet", {{"epoch", 3}, {"peer", name}});
//
// `event` is a short constant in lower_snake_case that scripts may match; `text` may change.
//
// A Logger is made by main and passed by reference. Thread-safe. Logging never fails and never
// waits without bound: a line whose reader takes nothing for 200 ms is dropped, later ones at once
// until the reader comes back, and then one line says how many are missing. A line is at most 4096
// bytes (PIPE_BUF), so that lines of processes which share a pipe do not mix; longer ones are cut.
#ifndef MUSTER_BASE_LOG_H_
#define MUSTER_BASE_LOG_H_

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/ids.h"

namespace muster {

enum class LogLevel : uint8_t { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3, kOff = 4 };

// kAuto: kText if the output is a terminal, otherwise kJson.
enum class LogFormat : uint8_t { kAuto, kText, kJson };

// "debug", "info", "warning", "error", "off".
const char* Name(LogLevel level);
// Inverse of Name(). INVALID_ARGUMENT lists the names.
absl::StatusOr<LogLevel> ParseLogLevel(absl::string_view name);
// "auto", "text" or "json". INVALID_ARGUMENT lists the names.
absl::StatusOr<LogFormat> ParseLogFormat(absl::string_view name);

// A named value of a log line. Owns its value; `key` must outlive it (normally a literal).
struct LogField {
  using Value = std::variant<std::string, int64_t, uint64_t, double, bool>;

  LogField(absl::string_view key, const char* value) : key(key), value(std::string(value)) {}
  LogField(absl::string_view key, absl::string_view value) : key(key), value(std::string(value)) {}
  LogField(absl::string_view key, std::string value) : key(key), value(std::move(value)) {}
  LogField(absl::string_view key, bool value) : key(key), value(value) {}
  LogField(absl::string_view key, std::floating_point auto value)
      : key(key), value(static_cast<double>(value)) {}
  LogField(absl::string_view key, std::signed_integral auto value)
      : key(key), value(static_cast<int64_t>(value)) {}
  template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>) LogField(absl::string_view key, T value)
      : key(key), value(static_cast<uint64_t>(value)) {}

  absl::string_view key;
  Value value;
};

struct LoggerOptions {
  // Name of this process in the fleet, for example "coordinator" or "worker-2".
  std::string process;
  // Empty: the machine's host name.
  std::string host = {};
  // Lines below this are not written.
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kAuto;
  // File descriptor that lines go to; not closed. Default: standard error.
  int descriptor = 2;
  // If set, lines (without the newline) go here instead, under a lock: it must not log.
  // kAuto then means kJson.
  std::function<void(LogLevel level, absl::string_view line)> write = {};
};

class Logger {
 public:
  explicit Logger(LoggerOptions options);
  ~Logger();
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  // What the following lines carry. Cheap enough for every step. -1 and 0: none.
  void SetContext(Rank rank, Epoch epoch, Step step);

  void SetLevel(LogLevel level);
  bool Enabled(LogLevel level) const;

  void Debug(absl::string_view event, absl::string_view text,
             std::initializer_list<LogField> fields = {});
  void Info(absl::string_view event, absl::string_view text,
            std::initializer_list<LogField> fields = {});
  void Warning(absl::string_view event, absl::string_view text,
               std::initializer_list<LogField> fields = {});
  void Error(absl::string_view event, absl::string_view text,
             std::initializer_list<LogField> fields = {});
  void Log(LogLevel level, absl::string_view event, absl::string_view text,
           absl::Span<const LogField> fields);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

// Writes nothing; for tests and for tools that have nothing to say.
std::unique_ptr<Logger> MakeSilentLogger();

}  // namespace muster

#endif  // MUSTER_BASE_LOG_H_
