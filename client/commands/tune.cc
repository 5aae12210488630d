#include "client/commands/tune.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "base/control/transport_names.h"
#include "base/status_macros.h"
#include "client/commands/job_commands.h"
#include "client/tune/tune_report.h"

namespace muster {
namespace {

std::optional<Collective> CollectiveByName(const std::string& name) {
  for (const Collective each : kAllCollectives) {
    // Of a pair there is nothing to choose.
    if (name == Name(each) && each != Collective::kSendReceive) return each;
  }
  return std::nullopt;
}

// As LocalMesh knows them.
absl::StatusOr<std::vector<std::string>> MeshNames(const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const std::string& word : words) {
    names.push_back(MeshNameOf(word));
    const std::string& name = names.back();
    if (name != "inproc" && name != "tcp" && name != "shm" && name != "ofi") {
      return absl::InvalidArgumentError(absl::StrCat(
          "--transport: expected inproc, tcp, shared_memory or libfabric, got \"", word, "\""));
    }
  }
  return names;
}

}  // namespace

int TuneCommand(const TuneCommandOptions& options, FileSystem& files, Console* console) {
  const absl::StatusOr<std::vector<int64_t>> sizes = ParseSizes(options.bytes);
  if (!sizes.ok()) return Complain(Annotate(sizes.status(), "--bytes"), 2);
  const std::optional<Collective> collective = CollectiveByName(options.collective);
  if (!collective.has_value()) {
    return Complain(absl::InvalidArgumentError(absl::StrCat(
                        "--collective: expected all-reduce, reduce-scatter, all-gather, broadcast, "
                        "reduce, gather, scatter, all-to-all, push, pull or barrier, got \"",
                        options.collective, "\"")),
                    2);
  }
  const absl::StatusOr<std::vector<std::string>> transports = MeshNames(options.transports);
  if (!transports.ok()) return Complain(transports.status(), 2);
  for (const std::string& transport : *transports) {
    for (const int ranks : options.ranks) {
      TuneRequest request{.transport = transport,
                          .ranks = ranks,
                          .collective = *collective,
                          .bytes = *sizes,
                          .any_order = options.any_order,
                          .verify = options.verify,
                          .rounds = options.rounds,
                          .budget = absl::Milliseconds(options.budget_ms),
                          .cache_directory = options.cache_directory,
                          .host = options.host,
                          .software_version = options.software_version};
      const absl::StatusOr<TuneReport> report = MakeTuneReport(request, files);
      if (!report.ok()) {
        return Complain(Annotate(report.status(), absl::StrCat(ranks, " ranks over ", transport)),
                        1);
      }
      for (const std::string& line : options.json
                                         ? ReportJson(request, *report)
                                         : ReportLines(request, *report, options.explain)) {
        console->Line(line);
      }
    }
  }
  return console->write_status().ok() ? 0 : Complain(console->write_status(), 1);
}

}  // namespace muster
