// What the command lines of daemons have alike: how arguments are read, and the flags of the log.
#ifndef MUSTER_BASE_COMMAND_LINE_H_
#define MUSTER_BASE_COMMAND_LINE_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/log.h"

namespace CLI {
class App;
}  // namespace CLI

namespace muster {

// Reads the arguments into what `app` declares. Returns the exit code where the program must end
// with it: 0 after --help or --version, 2 after a line on standard error that says what is wrong,
// by the app's name.
std::optional<int> ReadArguments(CLI::App& app, int argc, char** argv);

struct LogFlags {
  std::string format = "auto";
  std::string level = "info";

  // Adds --log-format and --log-level, which write here: must outlive the app's reading.
  void Declare(CLI::App& app);
  // INVALID_ARGUMENT names the flag. `process` is what each line says it comes from.
  absl::StatusOr<LoggerOptions> ToOptions(std::string process) const;
};

}  // namespace muster

#endif  // MUSTER_BASE_COMMAND_LINE_H_
