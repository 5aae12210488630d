// The parameter server's Prometheus metrics. Thread-safe.
//
//   muster_parameter_server_pushes_total{table, outcome="added"|"duplicate"|"refused"}  counter,
//                                       chunks of pushes; "refused" counts fenced ones as well
//   muster_parameter_server_fenced_total{table}                counter, of contributors replaced
//   muster_parameter_server_pulls_total{table}                 counter, parts of pulls
//   muster_parameter_server_bytes_total{table, direction="pushed"|"pulled"}             counter
//   muster_parameter_server_waits_total{table, call="push"|"pull"}                      counter
//   muster_parameter_server_updates_total{table, outcome="applied"|"skipped"|"clipped"} counter
//   muster_parameter_server_staleness{table}                   histogram: pushes applied between a
//                                       contributor's pull and its push
//   muster_parameter_server_table_bytes{table, kind="state"|"held"|"retired"|"idle"}    gauge
//   muster_parameter_server_version{table}, ..._contributors{table}, ..._waiting{table} gauges
//   muster_parameter_server_memory_bytes{kind="taken"|"budget"}                         gauge
//   muster_parameter_server_in_flight_bytes, muster_parameter_server_clients            gauges
#ifndef MUSTER_SERVER_PARAMETER_SERVER_RPC_PARAMETER_SERVER_METRICS_H_
#define MUSTER_SERVER_PARAMETER_SERVER_RPC_PARAMETER_SERVER_METRICS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/parameter_server/core/table_metrics.h"

namespace prometheus {
class Registry;
}  // namespace prometheus

namespace muster {

class ParameterServerMetrics {
 public:
  // `registry` must outlive the object.
  explicit ParameterServerMetrics(prometheus::Registry& registry);
  ~ParameterServerMetrics();

  struct Table {
    TableMetrics counts;  // since the table was made
    int64_t version = 0;
    int64_t contributors = 0;  // attached
    int64_t waiting = 0;       // calls
  };
  void Set(const std::string& table, const Table& values);
  // Removes the series of tables that are not among `tables`.
  void KeepOnly(const std::vector<std::string>& tables);

  struct Server {
    int64_t taken_bytes = 0;
    int64_t budget_bytes = 0;
    int64_t in_flight_bytes = 0;
    int64_t clients = 0;
  };
  void Set(const Server& values);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_RPC_PARAMETER_SERVER_METRICS_H_
