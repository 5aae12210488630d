// example-linear-regression: a small linear model, trained on parameter servers by a program that
// is no Muster worker.
//
//   muster-parameter-server --listen 127.0.0.1:7071
//   muster-parameter-server --listen 127.0.0.1:7072
//   example-linear-regression --servers 127.0.0.1:7071,127.0.0.1:7072 --contributors 2 --index 0
//   example-linear-regression --servers 127.0.0.1:7071,127.0.0.1:7072 --contributors 2 --index 1
//
// One that is killed is started again with the same index: it goes on where it stopped.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/random.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "client/parameters/parameter_table.h"

namespace muster {
namespace {

constexpr int kSamples = 32;  // of a contributor's part of a step

struct Settings {
  std::vector<std::string> servers = {"127.0.0.1:7071"};
  std::string table = "linear-regression";
  int contributors = 1;
  int index = 0;
  int64_t steps = 100;
  int features = 100;
  int staleness = -1;
  int delay_ms = 0;
  int timeout_ms = 60'000;
};

v1::TableSpec SpecOf(const Settings& settings) {
  v1::TableSpec spec;
  spec.set_name(settings.table);
  v1::DenseTensor& weights = *spec.mutable_dense()->add_tensors();
  weights.set_name("weights");
  weights.add_shape(settings.features);
  weights.mutable_initial()->set_kind(v1::InitialValue::NORMAL);
  weights.mutable_initial()->set_scale(0.1f);
  v1::DenseTensor& bias = *spec.mutable_dense()->add_tensors();
  bias.set_name("bias");
  bias.add_shape(1);
  spec.mutable_optimizer()->mutable_sgd()->set_momentum(0.5);
  spec.mutable_learning_rate()->set_peak(0.05);
  spec.set_contributors(settings.contributors);
  if (settings.staleness >= 0) {
    spec.set_consistency(v1::TableSpec::BOUNDED_STALENESS);
    spec.set_staleness(settings.staleness);
  }
  spec.set_seed(7);
  return spec;
}

// Adds the gradient of half the squared error over the samples of (step, contributor), which
// depend on nothing else; returns that error.
double Backward(const Settings& settings, int64_t step, const std::vector<float>& values,
                Range weights, Range bias, std::vector<float>* gradient) {
  const RandomStream input(7, "input", static_cast<uint64_t>(step),
                           static_cast<uint64_t>(settings.index));
  const RandomStream truth(7, "truth");
  double error_sum = 0;
  std::vector<double> x(settings.features);
  for (int sample = 0; sample < kSamples; ++sample) {
    double predicted = values[bias.offset];
    double wanted = 1.0;
    for (int i = 0; i < settings.features; ++i) {
      x[i] = input.Uniform(static_cast<uint64_t>(sample) * settings.features + i) - 0.5;
      predicted += x[i] * values[weights.offset + i];
      wanted += x[i] * (truth.Uniform(i) - 0.5);
    }
    const double error = predicted - wanted;
    error_sum += error * error / 2;
    for (int i = 0; i < settings.features; ++i) {
      (*gradient)[weights.offset + i] += static_cast<float>(error * x[i]);
    }
    (*gradient)[bias.offset] += static_cast<float>(error);
  }
  return error_sum / kSamples;
}

absl::Status Train(const Settings& settings) {
  ParameterTableOptions options;
  options.servers = settings.servers;
  options.spec = SpecOf(settings);
  options.contributor = settings.index;
  options.timeout = absl::Milliseconds(settings.timeout_ms);
  MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<ParameterTable> table,
                          ParameterTable::Open(options));
  MUSTER_ASSIGN_OR_RETURN(const Range weights, table->TensorRange("weights"));
  MUSTER_ASSIGN_OR_RETURN(const Range bias, table->TensorRange("bias"));
  MUSTER_ASSIGN_OR_RETURN(const int64_t first, table->NextStep(settings.index));
  const bool synchronous = settings.staleness < 0;
  std::vector<float> values(table->element_count());
  MUSTER_RETURN_IF_ERROR(table->Pull(synchronous ? first - 1 : 0, absl::MakeSpan(values)).status());
  std::printf("begins at step %lld\n", static_cast<long long>(first));
  std::fflush(stdout);
  for (int64_t step = first; step <= settings.steps; ++step) {
    absl::SleepFor(absl::Milliseconds(settings.delay_ms));
    std::vector<float> gradient(values.size());
    const double error = Backward(settings, step, values, weights, bias, &gradient);
    MUSTER_RETURN_IF_ERROR(
        table
            ->PushPull({.step = step, .micro_batch = settings.index, .samples = kSamples}, gradient,
                       synchronous ? step : 0, absl::MakeSpan(values))
            .status());
    std::printf("step %lld error %.6f\n", static_cast<long long>(step), error);
    std::fflush(stdout);
  }
  const absl::string_view bytes(reinterpret_cast<const char*>(values.data()),
                                values.size() * sizeof(float));
  std::printf("parameters %s\n", Sha256Hex(bytes).c_str());
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Trains a linear model on parameter servers.");
  app.option_defaults()->always_capture_default();
  app.add_option("--servers", settings.servers,
                 "host:port of each, such as 127.0.0.1:7071,127.0.0.1:7072")
      ->delimiter(',');
  app.add_option("--table", settings.table,
                 "Name of the table; one that is there already is trained on");
  app.add_option("--contributors", settings.contributors, "How many such programs train together")
      ->check(CLI::Range(1, 1024));
  app.add_option("--index", settings.index, "Which of them this is, from 0");
  app.add_option("--steps", settings.steps, "Steps in all")->check(CLI::Range(1, 1 << 30));
  app.add_option("--features", settings.features, "Size of the model")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--staleness", settings.staleness,
                 "Apply pushes on arrival, none so many steps ahead of the slowest; -1: all steps "
                 "together");
  app.add_option("--timeout-ms", settings.timeout_ms, "How long to wait for servers and others");
  app.add_option("--delay-ms", settings.delay_ms, "Sleep so long before each step");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const absl::Status status = Train(settings);
  if (status.ok()) return 0;
  std::fprintf(stderr, "example-linear-regression: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::Main(argc, argv); }
