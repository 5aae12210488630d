// muster-fuzz-seeds DIRECTORY: writes the seeds of every fuzz target to DIRECTORY/TARGET/seed-N.
#include <filesystem>
#include <fstream>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "tests/fuzz/targets.h"

int main(int argc, char** argv) {
  // An option is no directory to make.
  if (argc != 2 || argv[1][0] == '-') {
    std::cerr << "usage: muster-fuzz-seeds DIRECTORY (in the sources: tests/fuzz/corpus)\n";
    return 2;
  }
  for (const muster::FuzzTarget* target : muster::kAllFuzzTargets) {
    const std::filesystem::path folder = std::filesystem::path(argv[1]) / target->name;
    std::filesystem::create_directories(folder);
    int number = 0;
    for (const std::string& seed : target->seeds()) {
      std::ofstream file(folder / absl::StrCat("seed-", number++), std::ios::binary);
      file << seed;
      if (!file.flush()) {
        std::cerr << "cannot write to " << folder << "\n";
        return 1;
      }
    }
  }
  return 0;
}
