#include "base/command_line.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <utility>

#include "base/daemon.h"
#include "base/status_macros.h"

namespace muster {

std::optional<int> ReadArguments(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return EndOutput(app.get_name(), app.exit(error));
    std::fprintf(stderr, "%s: %s (see --help)\n", app.get_name().c_str(), error.what());
    return 2;
  }
  return std::nullopt;
}

void LogFlags::Declare(CLI::App& app) {
  app.add_option("--log-format", format, "auto, text or json")->default_val(format);
  app.add_option("--log-level", level, "debug, info, warning, error or off")->default_val(level);
}

absl::StatusOr<LoggerOptions> LogFlags::ToOptions(std::string process) const {
  const absl::StatusOr<LogFormat> parsed_format = ParseLogFormat(format);
  MUSTER_RETURN_IF_ERROR(Annotate(parsed_format.status(), "--log-format"));
  const absl::StatusOr<LogLevel> parsed_level = ParseLogLevel(level);
  MUSTER_RETURN_IF_ERROR(Annotate(parsed_level.status(), "--log-level"));
  LoggerOptions options;
  options.process = std::move(process);
  options.level = *parsed_level;
  options.format = *parsed_format;
  return options;
}

}  // namespace muster
