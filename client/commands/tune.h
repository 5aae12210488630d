// `muster tune`: what the collectives' tuner measures and chooses on this host.
#ifndef MUSTER_CLIENT_COMMANDS_TUNE_H_
#define MUSTER_CLIENT_COMMANDS_TUNE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "client/output/console.h"

namespace muster {

struct TuneCommandOptions {
  std::vector<int> ranks = {2};
  std::vector<std::string> transports = {"shared_memory", "tcp"};
  std::string bytes = "256-16MiB";
  std::string collective = "all-reduce";
  std::string cache_directory;
  std::string host;
  std::string software_version;
  int rounds = 15;
  int64_t budget_ms = 600;
  bool any_order = false;
  bool explain = false;
  bool verify = false;
  bool json = false;  // an object for each size, one a line
};

// 0; 1 if it cannot measure or write; 2 for a wrong option.
int TuneCommand(const TuneCommandOptions& options, FileSystem& files, Console* console);

}  // namespace muster

#endif  // MUSTER_CLIENT_COMMANDS_TUNE_H_
