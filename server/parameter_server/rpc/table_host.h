// A table with the calls on it: made one at a time, in the order in which they come, on the threads
// of a pool; those that have to wait are made again when what they wait for has come.
//
// Thread-safe. Always held by a shared pointer; lives until the last call is over and the last
// memory of the table is no longer read.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_RPC_TABLE_HOST_H_
#define MUSTER_SERVER_PARAMETER_SERVER_RPC_TABLE_HOST_H_

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "muster/v1/parameter_server.pb.h"
#include "server/parameter_server/core/table_directory.h"
#include "server/parameter_server/rpc/shared_account.h"
#include "server/parameter_server/rpc/work_pool.h"
#include "state/gradient_norm.h"

namespace muster {

class TableHost : public std::enable_shared_from_this<TableHost> {
 public:
  // The sums of the last step that a client committed (CommitMode::kExternal): whoever commits it
  // on servers that lack it, the first having died on the way, must use the same.
  struct LastCommit {
    Step step = 0;
    SquaredSum squared_gradient;
  };
  // What a call sees of the table, for as long as it runs.
  struct Access {
    const AnyTable& table;
    LastCommit& last_commit;
    absl::Time now;
    // Not OK once the table is closed: the call must fail with this, and leave the table alone.
    const absl::Status& closed;
  };
  // When a call is to be made again.
  struct Again {
    std::optional<Wait> wait;  // or else after any other call
  };
  // A call: nothing when it is over. One that sees that its caller has gone is over.
  using Call = absl::AnyInvocable<std::optional<Again>(const Access& access)>;

  // `spec` is what made the table, `account` what it takes its memory from, and `answers` what
  // copies of its values for answers are taken from: so it can be read though it fills its own.
  TableHost(AnyTable table, v1::TableSpec spec, std::shared_ptr<SharedAccount> account,
            std::shared_ptr<SharedAccount> answers, std::shared_ptr<WorkPool> pool)
      : account_(std::move(account)),
        answers_(std::move(answers)),
        pool_(std::move(pool)),
        spec_(std::move(spec)),
        table_(std::move(table)) {}

  const v1::TableSpec& spec() const { return spec_; }
  const std::string& name() const { return spec_.name(); }
  bool dense() const { return table_.dense != nullptr; }
  // What never changes of the table: its spec, layout and range.
  const AnyTable& constants() const { return table_; }
  const std::shared_ptr<SharedAccount>& answers() { return answers_; }

  Ticket NewTicket() { return next_ticket_.fetch_add(1, std::memory_order_relaxed); }
  // Makes the call, soon. `ticket` is of NewTicket, and of this call alone.
  void Run(Ticket ticket, Call call) ABSL_LOCKS_EXCLUDED(mutex_);
  void Run(Call call) { Run(NewTicket(), std::move(call)); }
  // Makes a call that waits again at once: its caller has gone. Does nothing for one that does not.
  void Wake(Ticket ticket) ABSL_LOCKS_EXCLUDED(mutex_);
  // Calls that wait, and all later ones, fail with `reason`.
  void Close(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Work = WorkPool::Work;

  void Post(Work work) ABSL_LOCKS_EXCLUDED(mutex_);
  void RunQueue() ABSL_LOCKS_EXCLUDED(mutex_);
  // The following run from the queue, so one at a time.
  void Make(Ticket ticket, Call call);
  void MakeReady();
  void Try(Ticket ticket, Call call);

  const std::shared_ptr<SharedAccount> account_;  // outlives the table
  const std::shared_ptr<SharedAccount> answers_;
  const std::shared_ptr<WorkPool> pool_;
  const v1::TableSpec spec_;
  const AnyTable table_;
  std::atomic<Ticket> next_ticket_ = 1;

  // Of what runs from the queue.
  LastCommit last_commit_;
  absl::Status closed_;
  std::map<Ticket, Call> parked_;  // in the table's list
  std::map<Ticket, Call> after_any_call_;

  absl::Mutex mutex_;
  std::deque<Work> queue_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_RPC_TABLE_HOST_H_
