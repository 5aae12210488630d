// muster-checkpoint: looks into checkpoints on disk.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "base/daemon.h"
#include "base/file.h"
#include "base/version.h"
#include "worker/checkpoint/checkpoint_diff.h"

namespace muster {
namespace {

int Diff(const std::string& first, const std::string& second, bool json) {
  PosixFileSystem files;
  const absl::StatusOr<CheckpointDifference> difference = CompareCheckpoints(files, first, second);
  if (!difference.ok()) {
    std::fprintf(stderr, "muster-checkpoint: %s\n",
                 std::string(difference.status().message()).c_str());
    return 2;
  }
  if (json) {
    std::printf("%s\n", DifferenceJson(*difference).c_str());
  } else {
    for (const std::string& line : DifferenceLines(*difference)) std::printf("%s\n", line.c_str());
  }
  // An answer that is lost must not read as one of the two answers.
  const int code = difference->equal() ? 0 : 1;
  return EndOutput("muster-checkpoint", 0) == 0 ? code : 2;
}

int Main(int argc, char** argv) {
  OpenStandardDescriptors();
  CLI::App app("Looks into checkpoints on disk.", "muster-checkpoint");
  app.set_version_flag("--version", kSoftwareVersion);
  app.require_subcommand(1);
  CLI::App* diff = app.add_subcommand(
      "diff",
      "Compare two checkpoints bit for bit; exit 0: equal, 1: they differ, 2: one can't be read");
  std::string first, second;
  bool json = false;
  diff->add_option("first", first, "A checkpoint's directory (.../step-00000100)")
      ->required()
      ->check(NotEmpty);
  diff->add_option("second", second, "Another one's")->required()->check(NotEmpty);
  diff->add_flag("--json", json, "One JSON object, for scripts");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return EndOutput("muster-checkpoint", app.exit(error));
    std::fprintf(stderr, "muster-checkpoint: %s (see --help)\n", error.what());
    return 2;
  }
  return Diff(first, second, json);
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::Main(argc, argv); }
