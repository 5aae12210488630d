#include "absl/strings/strip.h"
#include "tests/tidy/text.h"
#include "tests/tidy/tidy.h"

namespace muster {
namespace {

struct Layer {
  const char* folder;
  std::vector<const char*> may_include;  // folders of this repository
};

// The longest matching folder decides. What is not listed (tests, bench) may include everything.
const std::vector<Layer>& Layers() {
  static const std::vector<Layer> layers = {
      {"base", {"base"}},
      {"proto/convert", {"base", "proto/convert", "muster/v1"}},
      {"proto", {"base", "proto", "muster/v1"}},
      {"collectives/topology", {"base", "collectives/topology"}},
      {"collectives/schedule", {"base", "collectives/schedule"}},
      {"collectives/model", {"base", "collectives/schedule", "collectives/model"}},
      {"collectives/reduce", {"base", "collectives/reduce", "collectives/schedule"}},
      {"collectives/transport",
       {"base", "collectives/topology", "collectives/transport", "collectives/reduce",
        "collectives/schedule"}},
      {"collectives", {"base", "collectives"}},
      {"state", {"base", "collectives", "state"}},
      {"server/core",
       {"base", "collectives/model", "collectives/schedule", "state", "server/core"}},
      {"server/parameter_server/core",
       {"base", "collectives/reduce", "state", "server/parameter_server/core"}},
      {"server", {"base", "proto", "muster/v1", "collectives", "state", "server"}},
      {"worker/compression", {"base", "state", "worker/compression"}},
      {"worker/core", {"base", "state", "worker/core"}},
      {"worker", {"base", "proto", "muster/v1", "collectives", "state", "worker"}},
      {"client/doctor", {"base", "collectives/topology", "client/doctor"}},
      {"client/parameters", {"base", "proto", "muster/v1", "state", "client/parameters"}},
      {"client/tune", {"base", "collectives", "client/tune"}},
      {"client", {"base", "proto", "muster/v1", "client"}},
  };
  return layers;
}

const char* const kOwnFolders[] = {"base",   "proto",  "muster/v1", "collectives", "state",
                                   "server", "worker", "client",    "tests",       "bench"};

// Time, random numbers and the network come in as arguments here.
bool IsPure(const std::string& path) {
  for (const char* folder : {"server/core", "server/parameter_server/core", "worker/compression",
                             "worker/core", "collectives/schedule", "collectives/model"}) {
    if (IsUnder(path, folder)) return true;
  }
  for (const char* file : {"state/bucket_order.", "state/bucket_slices.", "state/layout.",
                           "state/move_chunks.", "state/range.", "state/reshard_plan.",
                           "state/shard_map.", "state/sharding.", "state/source_balance."}) {
    if (absl::StartsWith(path, file)) return true;
  }
  return false;
}

const char* const kImpure[] = {
    "grpc",
    "google/protobuf",
    "muster/v1/",
    "proto/",
    "thread>",
    "mutex>",
    "condition_variable>",
    "future>",
    "atomic>",
    "chrono>",
    "ctime>",
    "time.h>",
    "fstream>",
    "iostream>",
    "filesystem>",
    "cstdio>",
    "sys/",
    "netinet/",
    "arpa/",
    "netdb.h",
    "unistd.h",
    "fcntl.h",
    "poll.h",
    "random>",
    "cuda",
    "absl/time/clock.h",
    "absl/synchronization/",
    "absl/random/",
    "base/file.h",
    "base/log.h",
    "base/daemon.h",
    "base/metrics_endpoint.h",
};

// Only these speak protobuf: all others see plain values.
bool MaySeeMessages(const std::string& path) {
  for (const char* folder : {"proto", "client", "server/rpc", "server/parameter_server/rpc",
                             "worker/rpc", "tests", "bench"}) {
    if (IsUnder(path, folder)) return true;
  }
  return IsMain(path);
}

// What stands between the quotes or brackets; empty if the line includes nothing.
std::string Included(const std::string& line, bool* own) {
  absl::string_view rest = line;
  if (!absl::ConsumePrefix(&rest, "#include ")) return "";
  *own = absl::StartsWith(rest, "\"");
  const size_t end = rest.find(*own ? '"' : '>', 1);
  if (end == absl::string_view::npos) return "";
  return std::string(rest.substr(1, end - 1));
}

bool IsOwn(const std::string& included) {
  for (const char* folder : kOwnFolders) {
    if (IsUnder(included, folder)) return true;
  }
  return false;
}

const Layer* LayerOf(const std::string& path) {
  const Layer* best = nullptr;
  for (const Layer& layer : Layers()) {
    if (!IsUnder(path, layer.folder)) continue;
    if (best == nullptr || std::string(layer.folder).size() > std::string(best->folder).size()) {
      best = &layer;
    }
  }
  return best;
}

}  // namespace

void CheckIncludes(const SourceFile& file, Problems* problems) {
  if (!IsCpp(file.path)) return;
  const Layer* layer = LayerOf(file.path);
  const std::vector<std::string> lines = Lines(file.text);
  for (size_t i = 0; i < lines.size(); ++i) {
    bool quoted = false;
    const std::string included = Included(lines[i], &quoted);
    if (included.empty()) continue;
    if (layer != nullptr && IsOwn(included)) {
      bool allowed = false;
      for (const char* folder : layer->may_include) allowed |= IsUnder(included, folder);
      if (!allowed) {
        problems->push_back(
            Problem(file, i + 1, absl::StrCat(layer->folder, "/ may not include ", included)));
      }
    }
    if (IsUnder(included, "muster/v1") && !MaySeeMessages(file.path)) {
      problems->push_back(
          Problem(file, i + 1,
                  absl::StrCat("only */rpc, proto/ and client/ see messages, not ", included)));
    }
    if (IsUnder(file.path, "proto/convert") &&
        (absl::StartsWith(included, "grpc") || absl::StrContains(included, ".grpc.pb.h"))) {
      problems->push_back(Problem(file, i + 1, "proto/convert does without gRPC"));
    }
    if (absl::StartsWith(included, "CLI/") && !IsMain(file.path) &&
        !absl::StrContains(file.path, "base/command_line")) {
      problems->push_back(
          Problem(file, i + 1, "only *_main.cc reads flags, with base/command_line"));
    }
    if (!IsPure(file.path)) continue;
    // With the closing bracket, so that <mutex> is meant and not "some_mutex/x.h".
    const std::string marked = quoted ? included : absl::StrCat(included, ">");
    for (const char* impure : kImpure) {
      if (absl::StartsWith(marked, impure)) {
        problems->push_back(Problem(
            file, i + 1, absl::StrCat("this folder is pure; it may not include ", included)));
      }
    }
  }
}

}  // namespace muster
