// What ParameterTable is made of; internal to client/parameters.
#ifndef MUSTER_CLIENT_PARAMETERS_PARAMETER_TABLE_IMPL_H_
#define MUSTER_CLIENT_PARAMETERS_PARAMETER_TABLE_IMPL_H_

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/parameters/dense_transfers.h"
#include "client/parameters/memory_loan.h"
#include "client/parameters/parameter_table.h"
#include "client/parameters/server_link.h"

namespace muster {

struct ParameterTable::Impl {
  using Stub = v1::ParameterServer::Stub;

  absl::Time Deadline() const { return absl::Now() + options.timeout; }
  v1::Contributor Self() const;
  absl::Status CheckDense(size_t values) const;
  absl::Status CheckSparse(size_t rows, size_t values) const;
  absl::Status CheckRows(absl::Span<const int64_t> rows) const;
  // FAILED_PRECONDITION for a table that is only read.
  absl::Status CheckContributes() const;
  // "step 3 of table "t"", for errors.
  std::string What(absl::string_view call, Step step) const;

  v1::Push PushMessage(const PushOf& of, bool assign) const;
  v1::Pull PullMessage(int64_t min_version) const;
  void AddPushes(const v1::Push& push, absl::Span<const float> values, const MemoryLoan& loan,
                 std::vector<v1::Pushed>* answers, std::vector<Transfer>* transfers);
  void AddPulls(int64_t min_version, absl::Span<float> values,
                std::vector<PulledVersions>* versions, std::vector<Transfer>* transfers);
  // Runs them and waits for memory that was lent.
  absl::Status Run(const std::vector<Transfer>& transfers, MemoryLoan* loan, absl::Time deadline);
  absl::Status RunPushRows(const v1::Push& push, absl::Span<const int64_t> rows,
                           absl::Span<const float> values, std::vector<v1::Pushed>* answers,
                           absl::Time deadline);

  // With EXTERNAL commits: lets all servers apply the step with the sums over all of them, once all
  // contributions are there. Any number of clients may do so.
  absl::Status CommitStep(Step step, absl::Time deadline);

  // Signs of life, until `detached`.
  void KeepAlive();
  absl::Status Detach();

  ParameterTableOptions options;  // `incarnation` is set
  std::vector<std::unique_ptr<ServerLink>> links;
  int64_t element_count = 0;  // or rows
  int64_t width = 0;          // sparse
  std::map<std::string, Range, std::less<>> tensors;
  std::map<int32_t, Step> next_steps;
  CallRegistry calls;

  absl::Mutex mutex;
  bool attached ABSL_GUARDED_BY(mutex) = false;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  std::thread keeper;
};

}  // namespace muster

#endif  // MUSTER_CLIENT_PARAMETERS_PARAMETER_TABLE_IMPL_H_
