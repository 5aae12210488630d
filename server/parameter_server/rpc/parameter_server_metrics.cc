#include "server/parameter_server/rpc/parameter_server_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace muster {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;
using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;

struct ParameterServerMetrics::Impl {
  explicit Impl(prometheus::Registry& registry)
      : pushes(CounterOf(registry, "pushes_total", "Chunks of pushes, by outcome.")),
        fenced(CounterOf(registry, "fenced_total", "Chunks of contributors that were replaced.")),
        pulls(CounterOf(registry, "pulls_total", "Parts of pulls.")),
        bytes(CounterOf(registry, "bytes_total", "Bytes of values, by direction.")),
        waits(CounterOf(registry, "waits_total", "Calls that had to wait.")),
        updates(CounterOf(registry, "updates_total", "Steps, or pushes, by outcome.")),
        staleness(BuildHistogram()
                      .Name("muster_parameter_server_staleness")
                      .Help("Pushes applied between a contributor's pull and its push.")
                      .Register(registry)),
        table_bytes(GaugeOf(registry, "table_bytes", "Memory of a table.")),
        version(GaugeOf(registry, "version", "Version of a table.")),
        contributors(GaugeOf(registry, "contributors", "Contributors that are attached.")),
        waiting(GaugeOf(registry, "waiting", "Calls that wait.")),
        memory(GaugeOf(registry, "memory_bytes", "Memory of all tables.")),
        in_flight(GaugeOf(registry, "in_flight_bytes", "Requests read and not yet added.").Add({})),
        clients(GaugeOf(registry, "clients", "Clients that are moving data.").Add({})) {}

  static Family<Counter>& CounterOf(prometheus::Registry& registry, const std::string& name,
                                    const std::string& help) {
    return BuildCounter().Name("muster_parameter_server_" + name).Help(help).Register(registry);
  }
  static Family<Gauge>& GaugeOf(prometheus::Registry& registry, const std::string& name,
                                const std::string& help) {
    return BuildGauge().Name("muster_parameter_server_" + name).Help(help).Register(registry);
  }

  // What a table shows, by family; removed with the table.
  struct Shown {
    std::map<std::pair<Family<Counter>*, std::string>, Counter*> counters;
    std::map<std::pair<Family<Gauge>*, std::string>, Gauge*> gauges;
    Histogram* staleness = nullptr;
    StalenessHistogram observed;
  };

  // `kind` is the value of the label `key`, or neither is there.
  static Labels LabelsOf(const std::string& table, const std::string& key,
                         const std::string& kind) {
    Labels labels = {{"table", table}};
    if (!key.empty()) labels[key] = kind;
    return labels;
  }
  void Count(Shown& shown, Family<Counter>& family, const std::string& table,
             const std::string& key, const std::string& kind, int64_t value) {
    Counter*& counter = shown.counters[{&family, kind}];
    if (counter == nullptr) counter = &family.Add(LabelsOf(table, key, kind));
    // A table that was dropped and made again begins anew.
    const double more = static_cast<double>(value) - counter->Value();
    if (more > 0) counter->Increment(more);
  }
  void Show(Shown& shown, Family<Gauge>& family, const std::string& table, const std::string& key,
            const std::string& kind, int64_t value) {
    Gauge*& gauge = shown.gauges[{&family, kind}];
    if (gauge == nullptr) gauge = &family.Add(LabelsOf(table, key, kind));
    gauge->Set(static_cast<double>(value));
  }
  void Observe(Shown& shown, const std::string& table, const StalenessHistogram& now) {
    if (shown.staleness == nullptr) {
      const Histogram::BucketBoundaries bounds(StalenessHistogram::kBounds.begin(),
                                               StalenessHistogram::kBounds.end());
      shown.staleness = &staleness.Add(Labels{{"table", table}}, bounds);
    }
    std::vector<double> more;
    for (size_t i = 0; i < now.counts.size(); ++i) {
      more.push_back(static_cast<double>(now.counts[i] - shown.observed.counts[i]));
    }
    shown.staleness->ObserveMultiple(more, static_cast<double>(now.sum - shown.observed.sum));
    shown.observed = now;
  }
  void Remove(Shown& shown) {
    for (auto& [key, counter] : shown.counters) key.first->Remove(counter);
    for (auto& [key, gauge] : shown.gauges) key.first->Remove(gauge);
    if (shown.staleness != nullptr) staleness.Remove(shown.staleness);
  }

  Family<Counter>& pushes;
  Family<Counter>& fenced;
  Family<Counter>& pulls;
  Family<Counter>& bytes;
  Family<Counter>& waits;
  Family<Counter>& updates;
  Family<Histogram>& staleness;
  Family<Gauge>& table_bytes;
  Family<Gauge>& version;
  Family<Gauge>& contributors;
  Family<Gauge>& waiting;
  Family<Gauge>& memory;
  Gauge& in_flight;
  Gauge& clients;
  absl::Mutex mutex;
  std::map<std::string, Shown> tables ABSL_GUARDED_BY(mutex);
};

ParameterServerMetrics::ParameterServerMetrics(prometheus::Registry& registry)
    : impl_(std::make_unique<Impl>(registry)) {}
ParameterServerMetrics::~ParameterServerMetrics() = default;

void ParameterServerMetrics::Set(const std::string& table, const Table& values) {
  Impl& impl = *impl_;
  absl::MutexLock lock(&impl.mutex);
  Impl::Shown& shown = impl.tables[table];
  const TableMetrics& counts = values.counts;
  impl.Count(shown, impl.pushes, table, "outcome", "added", counts.pushes_added);
  impl.Count(shown, impl.pushes, table, "outcome", "duplicate", counts.pushes_duplicate);
  impl.Count(shown, impl.pushes, table, "outcome", "refused", counts.pushes_refused);
  impl.Count(shown, impl.fenced, table, "", "", counts.pushes_fenced);
  impl.Count(shown, impl.pulls, table, "", "", counts.pulls);
  impl.Count(shown, impl.bytes, table, "direction", "pushed", counts.pushed_bytes);
  impl.Count(shown, impl.bytes, table, "direction", "pulled", counts.pulled_bytes);
  impl.Count(shown, impl.waits, table, "call", "push", counts.push_waits);
  impl.Count(shown, impl.waits, table, "call", "pull", counts.pull_waits);
  impl.Count(shown, impl.updates, table, "outcome", "applied", counts.updates);
  impl.Count(shown, impl.updates, table, "outcome", "skipped", counts.updates_skipped);
  impl.Count(shown, impl.updates, table, "outcome", "clipped", counts.updates_clipped);
  impl.Observe(shown, table, counts.staleness);
  impl.Show(shown, impl.table_bytes, table, "kind", "state", counts.table_bytes);
  impl.Show(shown, impl.table_bytes, table, "kind", "held", counts.held_bytes);
  impl.Show(shown, impl.table_bytes, table, "kind", "retired", counts.retired_bytes);
  impl.Show(shown, impl.table_bytes, table, "kind", "idle", counts.idle_bytes);
  impl.Show(shown, impl.version, table, "", "", values.version);
  impl.Show(shown, impl.contributors, table, "", "", values.contributors);
  impl.Show(shown, impl.waiting, table, "", "", values.waiting);
}

void ParameterServerMetrics::KeepOnly(const std::vector<std::string>& tables) {
  absl::MutexLock lock(&impl_->mutex);
  for (auto it = impl_->tables.begin(); it != impl_->tables.end();) {
    if (std::find(tables.begin(), tables.end(), it->first) != tables.end()) {
      ++it;
      continue;
    }
    impl_->Remove(it->second);
    it = impl_->tables.erase(it);
  }
}

void ParameterServerMetrics::Set(const Server& values) {
  impl_->memory.Add({{"kind", "taken"}}).Set(static_cast<double>(values.taken_bytes));
  impl_->memory.Add({{"kind", "budget"}}).Set(static_cast<double>(values.budget_bytes));
  impl_->in_flight.Set(static_cast<double>(values.in_flight_bytes));
  impl_->clients.Set(static_cast<double>(values.clients));
}

}  // namespace muster
