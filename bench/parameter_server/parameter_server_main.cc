// bench-parameter-server: what does it cost to push gradients through the parameter server and to
// pull parameters back, beside what gRPC can do at all?
//
// One client, one server in a process of its own, over loopback. The bound is an echo of the same
// bytes (echo.h) with the same messages, arguments and allocator settings, in the same run, in turn
// with the rows that are measured. GB/s are of one direction: bytes pushed (or pulled) by the time
// for both. CPU time is that of both processes: what the row costs where cores are scarce, and what
// stays the same beside other programs.
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/daemon.h"
#include "base/status_macros.h"
#include "bench/parameter_server/echo.h"
#include "bench/parameter_server/server_process.h"
#include "client/parameters/parameter_table.h"
#include "proto/rpc/bulk.h"
#include "proto/rpc/channel.h"

namespace muster::bench {
namespace {

struct Settings {
  int64_t bytes = 64 << 20;
  int repetitions = 20;
  int warm_up = 4;
  std::vector<std::string> rules = {"sgd"};
  std::vector<std::string> tables = {"segments", "whole steps", "asynchronous"};
  std::string json;
  std::string serve_echo;  // the ready file of an echo server
};

struct Row {
  std::string name;
  pid_t server = -1;
  std::function<absl::Status()> once;
  std::vector<double> times_ms;
  std::vector<double> cpu_ms;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// That this process and another one have taken so far.
double CpuMs(pid_t other) {
  timespec own = {};
  timespec others = {};
  clockid_t clock = {};
  MUSTER_CHECK_EQ(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own), 0);
  MUSTER_CHECK_EQ(clock_getcpuclockid(other, &clock), 0);
  MUSTER_CHECK_EQ(clock_gettime(clock, &others), 0);
  return absl::ToDoubleMilliseconds(absl::DurationFromTimespec(own) +
                                    absl::DurationFromTimespec(others));
}

int ServeEcho(const std::string& ready_file) {
  EchoServer server;
  const std::string aside = ready_file + ".new";
  std::ofstream(aside) << nlohmann::json{
      {"rpc_address", absl::StrCat("127.0.0.1:", server.port())}};
  std::rename(aside.c_str(), ready_file.c_str());
  while (true) pause();
}

v1::TableSpec SpecOf(const std::string& name, int64_t elements, const std::string& rule,
                     v1::TableSpec::Visibility visibility, v1::TableSpec::Consistency consistency) {
  v1::TableSpec spec;
  spec.set_name(name);
  v1::DenseTensor& tensor = *spec.mutable_dense()->add_tensors();
  tensor.set_name("weights");
  tensor.add_shape(elements);
  if (rule == "adamw") {
    spec.mutable_optimizer()->mutable_adamw();
  } else {
    spec.mutable_optimizer()->mutable_sgd();
  }
  spec.mutable_learning_rate()->set_peak(0.5);
  spec.set_contributors(1);
  spec.set_visibility(visibility);
  spec.set_consistency(consistency);
  return spec;
}

// A table with its next step.
struct OpenTable {
  std::unique_ptr<ParameterTable> table;
  Step step = 0;
};

absl::Span<std::byte> BytesOf(std::vector<float>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float)};
}

class Bench {
 public:
  explicit Bench(const Settings& settings)
      : settings_(settings),
        elements_(settings.bytes / 4),
        gradient_(static_cast<size_t>(elements_), 1.0f),
        values_(static_cast<size_t>(elements_), 0.0f) {}

  absl::Status AddRows() {
    MUSTER_ASSIGN_OR_RETURN(
        ServerProcess echo,
        ServerProcess::Start(SiblingProgram("bench-parameter-server"), {"--serve-echo", "-"}));
    echo_ = std::make_unique<ServerProcess>(std::move(echo));
    MUSTER_ASSIGN_OR_RETURN(
        ServerProcess server,
        ServerProcess::Start(SiblingProgram("muster-parameter-server"),
                             {"--listen", "127.0.0.1:0", "--log-level", "warning", "--memory-bytes",
                              absl::StrCat(64 * settings_.bytes + (1 << 30))}));
    server_ = std::make_unique<ServerProcess>(std::move(server));
    const auto channel = NewBulkChannel(echo_->address());
    for (const auto& [name, mode] : {std::pair("echo", EchoMode::kEcho),
                                     std::pair("echo, copied out", EchoMode::kIntoMemory)}) {
      rows_.push_back({name, echo_->pid(), [this, channel, mode = mode] {
                         return RunEcho(channel, mode, BytesOf(gradient_), BytesOf(values_),
                                        kBulkChunkBytes);
                       }});
    }
    rows_.push_back({"one way", echo_->pid(), [this, channel] {
                       return RunEcho(channel, EchoMode::kOneWay, BytesOf(gradient_), {},
                                      kBulkChunkBytes);
                     }});
    for (const std::string& rule : settings_.rules) {
      for (const std::string& table : settings_.tables) {
        MUSTER_RETURN_IF_ERROR(AddTable(
            absl::StrCat(rule, ", ", table), rule,
            table == "segments" ? v1::TableSpec::SEGMENTS : v1::TableSpec::WHOLE_STEPS,
            table == "asynchronous" ? v1::TableSpec::ASYNCHRONOUS : v1::TableSpec::SYNCHRONOUS));
      }
    }
    return absl::OkStatus();
  }

  // Rows in turn, so that what else the machine does meets all alike.
  absl::Status Run() {
    for (int i = 0; i < settings_.warm_up + settings_.repetitions; ++i) {
      for (Row& row : rows_) {
        const double cpu_before = CpuMs(row.server);
        const absl::Time begin = absl::Now();
        MUSTER_RETURN_IF_ERROR(Annotate(row.once(), row.name));
        if (i < settings_.warm_up) continue;
        row.times_ms.push_back(absl::ToDoubleMilliseconds(absl::Now() - begin));
        row.cpu_ms.push_back(CpuMs(row.server) - cpu_before);
      }
    }
    return absl::OkStatus();
  }

  nlohmann::json Print() const {
    const double echo_ms = Median(rows_[0].times_ms);
    const double copied_ms = Median(rows_[1].times_ms);
    std::printf(
        "# push and pull of %lld bytes of f32, one client, one server, loopback, %d times\n",
        static_cast<long long>(settings_.bytes), settings_.repetitions);
    std::printf("#%-24s %9s %9s %9s %9s %12s %12s\n", "", "median ms", "min ms", "CPU ms", "GB/s",
                "of echo", "of copied");
    nlohmann::json rows = nlohmann::json::array();
    for (const Row& row : rows_) {
      const double median_ms = Median(row.times_ms);
      const double least_ms = *std::min_element(row.times_ms.begin(), row.times_ms.end());
      const double gbps = static_cast<double>(settings_.bytes) / median_ms / 1e6;
      const double cpu_ms = Median(row.cpu_ms);
      std::printf(" %-24s %9.1f %9.1f %9.1f %9.2f %11.0f%% %11.0f%%\n", row.name.c_str(), median_ms,
                  least_ms, cpu_ms, gbps, 100 * echo_ms / median_ms, 100 * copied_ms / median_ms);
      rows.push_back({{"name", row.name},
                      {"bytes", settings_.bytes},
                      {"median_ms", median_ms},
                      {"min_ms", least_ms},
                      {"cpu_ms", cpu_ms},
                      {"gbps", gbps},
                      {"of_echo", echo_ms / median_ms},
                      {"of_copied_echo", copied_ms / median_ms},
                      {"times_ms", row.times_ms}});
    }
    return rows;
  }

 private:
  absl::Status AddTable(const std::string& name, const std::string& rule,
                        v1::TableSpec::Visibility visibility,
                        v1::TableSpec::Consistency consistency) {
    ParameterTableOptions options;
    options.servers = {server_->address()};
    options.spec =
        SpecOf(absl::StrCat("table-", rows_.size()), elements_, rule, visibility, consistency);
    options.contributor = 0;
    MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<ParameterTable> table, ParameterTable::Open(options));
    const bool plain = rule == "sgd";
    rows_.push_back(
        {name, server_->pid(),
         [this, plain, open = std::make_shared<OpenTable>(OpenTable{.table = std::move(table)})] {
           const Step step = ++open->step;
           MUSTER_RETURN_IF_ERROR(
               open->table->PushPull({.step = step}, gradient_, step, absl::MakeSpan(values_))
                   .status());
           // Each step takes the rate off a gradient of ones.
           const float expected = -0.5f * static_cast<float>(step);
           if (plain && (values_.front() != expected || values_.back() != expected)) {
             return absl::InternalError(
                 absl::StrFormat("expected %g, got %g", expected, values_.front()));
           }
           return absl::OkStatus();
         }});
    return absl::OkStatus();
  }

  const Settings settings_;
  const int64_t elements_;
  std::vector<float> gradient_;
  std::vector<float> values_;
  std::unique_ptr<ServerProcess> echo_;
  std::unique_ptr<ServerProcess> server_;
  std::vector<Row> rows_;
};

int Main(int argc, char** argv) {
  TuneProcess();
  KeepFreedMemory();
  Settings settings;
  std::string ready_file;
  CLI::App app("Measures pushes and pulls through the parameter server beside a bare echo.");
  app.add_option("--bytes", settings.bytes, "Of the table, such as 64MiB")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(int64_t{256}, int64_t{1} << 36));
  app.add_option("--repetitions", settings.repetitions, "Of each row")->check(CLI::Range(1, 10000));
  app.add_option("--rules", settings.rules, "Update rules, of sgd, adamw")
      ->delimiter(',')
      ->check(CLI::IsMember({"sgd", "adamw"}));
  app.add_option("--warm-up", settings.warm_up, "Of each row, before it is measured")
      ->check(CLI::Range(0, 10000));
  app.add_option("--tables", settings.tables,
                 "Kinds of tables, of segments, whole steps, asynchronous")
      ->delimiter(',')
      ->check(CLI::IsMember({"segments", "whole steps", "asynchronous"}));
  app.add_option("--json", settings.json, "Writes an array of objects there");
  app.add_option("--serve-echo", settings.serve_echo, "What the bench starts beside itself")
      ->group("");
  app.add_option("--ready-file", ready_file, "Of --serve-echo")->group("");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (!settings.serve_echo.empty()) return ServeEcho(ready_file);
  settings.bytes = settings.bytes / 256 * 256;  // whole alignments: no padding
  std::ofstream file;
  if (!settings.json.empty()) {
    file.open(settings.json);
    if (!file) {
      std::fprintf(stderr, "bench-parameter-server: --json: cannot write %s\n",
                   settings.json.c_str());
      return 2;
    }
  }
  Bench bench(settings);
  absl::Status status = bench.AddRows();
  if (status.ok()) status = bench.Run();
  if (!status.ok()) {
    std::fprintf(stderr, "bench-parameter-server: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  const nlohmann::json rows = bench.Print();
  if (!settings.json.empty()) {
    file << rows.dump(1) << "\n";
    if (!file.flush()) {
      std::fprintf(stderr, "bench-parameter-server: cannot write %s\n", settings.json.c_str());
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) {
  return muster::EndOutput("bench-parameter-server", muster::bench::Main(argc, argv));
}
