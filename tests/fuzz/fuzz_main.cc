// muster-fuzz --target=NAME [LIBFUZZER OPTION...] [CORPUS...]: libFuzzer on one of the targets.
//
// libFuzzer has the main function and passes over options that begin with two dashes.
#include <cstdlib>
#include <iostream>

#include "absl/strings/strip.h"
#include "tests/fuzz/targets.h"

namespace {

const muster::FuzzTarget* g_target = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  for (int i = 1; i < *argc; ++i) {
    absl::string_view name = (*argv)[i];
    if (absl::ConsumePrefix(&name, "--target=")) g_target = muster::FindFuzzTarget(name);
  }
  if (g_target == nullptr) {
    std::cerr << "usage: muster-fuzz --target=NAME [OPTION...] [CORPUS...]; targets:\n";
    for (const muster::FuzzTarget* target : muster::kAllFuzzTargets) {
      std::cerr << "  " << target->name << "\n";
    }
    std::exit(2);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > g_target->max_bytes) return -1;
  g_target->run(absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
