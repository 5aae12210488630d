// The tables of a server with their hosts. Thread-safe.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_RPC_TABLE_REGISTRY_H_
#define MUSTER_SERVER_PARAMETER_SERVER_RPC_TABLE_REGISTRY_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "muster/v1/parameter_server.pb.h"
#include "server/parameter_server/core/table_directory.h"
#include "server/parameter_server/rpc/shared_account.h"
#include "server/parameter_server/rpc/table_host.h"
#include "server/parameter_server/rpc/work_pool.h"

namespace muster {

class TableRegistry {
 public:
  // The accounts are as TableHost has them.
  TableRegistry(const TableDirectory::Options& options, std::shared_ptr<SharedAccount> account,
                std::shared_ptr<SharedAccount> answers, std::shared_ptr<WorkPool> pool);

  struct Opened {
    std::shared_ptr<TableHost> host;
    bool created = false;
  };
  // As TableDirectory::Open; takes as long as it takes to fill the table's memory.
  absl::StatusOr<Opened> Open(const v1::TableSpec& spec) ABSL_LOCKS_EXCLUDED(open_mutex_, mutex_);
  // NOT_FOUND names the tables there are. Never waits for an Open.
  absl::StatusOr<std::shared_ptr<TableHost>> Find(absl::string_view name) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The table is closed: its calls fail.
  absl::Status Drop(absl::string_view name) ABSL_LOCKS_EXCLUDED(open_mutex_, mutex_);
  std::vector<std::shared_ptr<TableHost>> All() const ABSL_LOCKS_EXCLUDED(mutex_);
  // All tables are closed, and so are those opened from now on.
  void CloseAll(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const std::shared_ptr<SharedAccount> account_;
  const std::shared_ptr<SharedAccount> answers_;
  const std::shared_ptr<WorkPool> pool_;

  absl::Mutex open_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);  // held while a table is made
  TableDirectory directory_ ABSL_GUARDED_BY(open_mutex_);
  mutable absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<TableHost>, std::less<>> hosts_ ABSL_GUARDED_BY(mutex_);
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_RPC_TABLE_REGISTRY_H_
