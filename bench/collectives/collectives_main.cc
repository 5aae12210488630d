// bench-collectives and bench-allreduce (which measures that alone): the flags of bench.h.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/control/transport_names.h"
#include "base/daemon.h"
#include "bench/collectives/bench.h"

namespace muster::bench {
namespace {

struct Flags {
  BenchSettings settings;
  std::vector<std::string> collectives;
  std::vector<std::string> types = {"f32"};
  std::string redop = "sum";
  std::string serve;  // internal: the part of a rank group
};

void AddOptions(CLI::App& app, Flags& flags) {
  BenchSettings& settings = flags.settings;
  GroupSettings& groups = settings.groups;
  const CLI::Range sizes(uint64_t{1}, uint64_t{64} << 30);
  app.add_option("--dtype", flags.types, "Element types, such as f32,bf16")
      ->delimiter(',')
      ->check(CLI::IsMember(TypeNames()));
  app.add_option("--redop", flags.redop, "Reduction of collectives that reduce")
      ->check(CLI::IsMember(RedopNames()));
  app.add_option("--root", settings.root, "Root of collectives that have one")
      ->check(CLI::Range(0, 63));
  app.add_option("--ranks", settings.ranks, "Numbers of ranks, such as 2,4")
      ->delimiter(',')
      ->check(CLI::Range(2, 64));
  app.add_option("--min-bytes,--min", settings.min_bytes, "Smallest size, such as 1KiB")
      ->transform(CLI::AsSizeValue(false))
      ->check(sizes);
  app.add_option("--max-bytes,--max", settings.max_bytes, "Largest size; sizes grow by 4")
      ->transform(CLI::AsSizeValue(false))
      ->check(sizes);
  app.add_flag("--in-place,!--no-in-place", settings.in_place, "Measures that, too; the default");
  app.add_option("--transport", groups.transports,
                 "Muster over: of inproc, shm, tcp, shm+tcp, grpc, ofi")
      ->delimiter(',')
      ->transform(MeshNameOf)
      ->check(CLI::IsMember({"inproc", "shm", "tcp", "shm+tcp", "grpc", "ofi"}));
  app.add_option(
         "--hosts", groups.muster.hosts,
         "Muster: takes the ranks to be on so many hosts, as many on each: for hierarchical "
         "algorithms, and for shm+tcp, which shares memory within each")
      ->check(CLI::Range(1, 64));
  app.add_option("--provider", groups.muster.provider,
                 "libfabric provider of --transport ofi: auto, efa, tcp, net, tcp;ofi_rxm, shm");
  app.add_option("--packet", groups.muster.packet_bytes,
                 "Muster over ofi: bytes of a packet, 0 = default");
  app.add_option("--rounds", settings.rounds, "Rounds per size; the median counts")
      ->check(CLI::Range(1, 1000));
  app.add_option("--round-ms", settings.round_ms, "Time of a round, in ms")
      ->check(CLI::Range(0.1, 60000.0));
  app.add_option("--peers", groups.peers, "Of openmpi, gloo, bound; none for none of them")
      ->delimiter(',')
      ->check(CLI::IsMember({"openmpi", "gloo", "bound", "none"}));
  app.add_option("--algorithms", groups.algorithms, "Muster: auto, or names such as ring,direct")
      ->delimiter(',');
  app.add_option("--json", settings.json, "Writes an array of flat objects there");
  app.add_flag(
      "--tune,!--no-tune", groups.muster.tunes,
      "Muster: auto goes by what the mesh was measured to be, as in a job (the default), or "
      "by size");
  app.add_option("--channels", groups.muster.channels,
                 "Muster: connections per peer of TCP and gRPC")
      ->check(CLI::Range(0, 64));
  app.add_option("--socket-buffer", groups.muster.socket_buffer_bytes,
                 "Muster: kernel buffers, 0 = auto")
      ->check(CLI::Range(0, 1 << 30));
  app.add_option("--segment", groups.muster.segment_bytes,
                 "Muster: bytes of a segment, 0 = default")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  app.add_option("--direct-limit", groups.muster.direct_limit_bytes,
                 "Muster: direct up to here, -1 = default");
  app.add_option("--small-limit", groups.muster.small_limit_bytes,
                 "Muster over shm: each rank reduces all up to here, -1 = default");
  app.add_option("--spin-us", groups.muster.spin_us, "Muster: spin before blocking, -1 = default")
      ->check(CLI::Range(-1, 1'000'000));
  app.add_option("--serve", flags.serve)->group("");
}

int Main(int argc, char** argv) {
  TuneProcess();
  Flags flags;
  BenchSettings& settings = flags.settings;
  settings.groups.transports = {"inproc", "tcp"};
  settings.groups.algorithms = {"auto"};
  settings.groups.peers = {"openmpi", "gloo", "bound"};
  settings.groups.muster.tunes = true;
  for (const Kind kind : KindsOfThisProgram()) flags.collectives.emplace_back(Name(kind));
  CLI::App app("Measures collectives, beside Open MPI and Gloo where they are installed.");
  if (flags.collectives.size() > 1) {
    app.add_option("--collective", flags.collectives, "Which, such as broadcast,gather")
        ->delimiter(',')
        ->check(CLI::IsMember(flags.collectives));
  }
  AddOptions(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  std::erase(settings.groups.peers, "none");
  if (!flags.serve.empty()) {
    return ServeGroup(flags.serve, settings.ranks[0], settings.groups.muster);
  }
  if (settings.min_bytes < 4 || settings.max_bytes < settings.min_bytes) {
    std::fprintf(stderr, "bench: --min-bytes must be 4 or more and not above --max-bytes\n");
    return 2;
  }
  for (const int ranks : settings.ranks) {
    if (settings.root >= ranks) {
      std::fprintf(stderr, "bench: --root %d is no rank of %d\n", settings.root, ranks);
      return 2;
    }
    if (ranks % settings.groups.muster.hosts != 0) {
      std::fprintf(stderr, "bench: %d ranks can't be on %d hosts, as many on each\n", ranks,
                   settings.groups.muster.hosts);
      return 2;
    }
  }
  for (const std::string& name : flags.collectives) settings.kinds.push_back(*KindFromName(name));
  settings.types.clear();
  for (const std::string& name : flags.types) settings.types.push_back(*TypeFromName(name));
  settings.redop = *RedopFromName(flags.redop);
  const std::vector<std::string> names =
      AlgorithmNames(settings.kinds, settings.types, settings.groups.muster.hosts);
  for (const std::string& name : settings.groups.algorithms) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    std::fprintf(stderr, "bench: --algorithms: expected some of %s for what is measured, got %s\n",
                 absl::StrJoin(names, ", ").c_str(), name.c_str());
    return 2;
  }
  // Fresh pages are expensive on virtual machines; everybody keeps theirs.
  setenv("GLIBC_TUNABLES",
         "glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=8589934592", 1);
  signal(SIGPIPE, SIG_IGN);
  return Measure(settings);
}

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) {
  return muster::EndOutput("bench", muster::bench::Main(argc, argv));
}
